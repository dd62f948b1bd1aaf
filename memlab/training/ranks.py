"""Where this process stands among the ranks of a run, and how it joins them. torchrun's environment says both."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from memlab.plan import Plan, PlanError

MEETING_POINT = "MEMLAB_MEETING_POINT"
"""Environment variable with torch's init_method for ranks on one machine: a file, so that no port is open."""
LONGEST_PAUSE = timedelta(days=1)
"""How long a rank waits for another where a launcher watches over both: a run may be paused."""


@dataclass(frozen=True)
class Place:
    """One rank's place, from 0."""

    rank: int
    world_size: int
    local_rank: int
    """Among the ranks of this machine; the number of its GPU."""


def place() -> Place | None:
    """Return what torchrun says of this process; None where none started it."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    if not all(os.environ.get(name, "").isdigit() for name in names):
        return None
    return Place(*(int(os.environ[name]) for name in names))


def check_machine(plan: Plan, device: torch.device, ranks_here: int) -> None:
    """Raise PlanError where this machine cannot hold `ranks_here` ranks of `plan` on `device`."""
    if device.type == "cuda" and ranks_here > torch.cuda.device_count():
        raise PlanError(
            f"world_size={plan.world_size} puts {ranks_here} ranks on this machine, which has "
            f"{torch.cuda.device_count()} GPU(s), one a rank: lower it, add machines, or set device='cpu'."
        )
    if plan.sync_batch_norm and device.type == "cpu":
        raise PlanError(
            "sync_batch_norm=True needs GPUs: torch's SyncBatchNorm exchanges its statistics by CUDA kernels and has "
            "none for the CPU; set norm='group', which couples no samples, or leave it out."
        )


def join(plan: Plan, device: torch.device) -> Callable[[], None]:
    """Join the other ranks of `plan`, unless this program has; return what leaves them again."""
    if dist.is_initialized():
        _check_size(plan, dist.get_world_size())
        return lambda: None
    here = place()
    if here is None:
        raise PlanError(
            f"world_size={plan.world_size} needs as many processes, and this one is alone: memlab.measure(plan), "
            f"memlab.train(plan) and the bench start them, as `torchrun --nproc-per-node {plan.world_size}` does; or "
            f"set world_size=1 and gradient_accumulation_steps="
            f"{plan.gradient_accumulation_steps * plan.world_size} for the same global batch."
        )
    _check_size(plan, here.world_size)
    check_machine(plan, device, int(os.environ.get("LOCAL_WORLD_SIZE", here.world_size)))
    if device.type == "cuda":
        torch.cuda.set_device(here.local_rank)
    meeting_point = os.environ.get(MEETING_POINT)
    dist.init_process_group(
        # Numbers of the host go by gloo on GPUs too: reading one must not wait for the device.
        "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl",
        init_method=meeting_point or "env://",
        rank=here.rank,
        world_size=here.world_size,
        timeout=LONGEST_PAUSE if meeting_point else None,
    )
    return leave


def leave() -> None:
    """Leave the other ranks."""
    with suppress(AssertionError, ValueError):  # left already
        dist.destroy_process_group()


def _check_size(plan: Plan, world_size: int) -> None:
    if world_size != plan.world_size:
        raise PlanError(
            f"world_size={plan.world_size} does not go with the {world_size} processes that torchrun started: set "
            f"world_size={world_size}, or start {plan.world_size} (--nnodes times --nproc-per-node)."
        )
