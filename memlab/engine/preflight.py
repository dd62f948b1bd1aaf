"""Refuse, before any memory is taken, a plan whose weights and their companions cannot fit."""

import torch
from typing_extensions import assert_never

from memlab.catalog import MODELS
from memlab.engine.host_memory import free_bytes
from memlab.plan import Plan
from memlab.units import MiB, format_bytes

RANK_BYTES = 200 * MiB
"""Host memory that a rank takes before it has a model: less than the 224 MiB that torch 2.13's CPU build dirties."""


def why_ranks_cannot_fit(plan: Plan, device: torch.device) -> str | None:
    """Return one sentence where the processes of `plan`'s ranks alone are more than this machine has free."""
    needed, free = plan.world_size * RANK_BYTES, free_bytes()
    if device.type != "cpu" or free is None or needed <= free:
        return None
    return (
        f"world_size={plan.world_size} starts {plan.world_size} processes on this machine, which take at least "
        f"{format_bytes(needed)} with torch alone, and {format_bytes(free)} are free: choose at most "
        f"{max(1, free // RANK_BYTES)}, or predict it without processes, memlab.predict(plan)."
    )


def why_it_cannot_fit(plan: Plan, device: torch.device) -> str | None:
    """Return one sentence where `plan` needs more than `device` has before one activation is kept.

    Small models are tried: what they hold beside activations fits anywhere.
    """
    if plan.model not in MODELS or MODELS[plan.model].small:
        return None
    needed, free = least_bytes(plan), _free(device)
    if free is None or needed <= free:
        return None
    weights = MODELS[plan.model].parameters
    return (
        f"model={plan.model!r} needs at least {format_bytes(needed)} ({weights:,} weights with gradients and "
        f"optimizer state, before one activation), and {device} has {format_bytes(free)} free: predict it for a "
        "card instead, memlab.predict(plan, card='a100-80gb'), or choose a smaller model."
    )


def least_bytes(plan: Plan) -> int:
    """Return the bytes of weights, gradients and optimizer state that no plan of this model gets below.

    All of them are alive when the optimizer steps. Adapters' gradients and state count as nothing. Of several
    ranks it is one, with its share of what they divide.
    """
    weight = 2 if plan.precision == "bf16-true" else 4
    held, state = weight, 0
    if not plan.lora_rank:
        moment = 4 if plan.master_weights or plan.optimizer_state_precision == "fp32" else weight
        held, state = 2 * weight, _moments(plan) * moment + (4 if plan.master_weights else 0)
    parameters = MODELS[plan.model].parameters
    match plan.data_parallel:
        case "ddp":
            return parameters * (held + state)
        case "zero1":
            return parameters * held + parameters * state // plan.world_size
        case "fsdp2":
            return parameters * (held + state) // plan.world_size
        case never:
            assert_never(never)


def _moments(plan: Plan) -> int:
    """Return how many numbers the optimizer keeps for each weight."""
    if plan.optimizer == "adamw":
        return 2
    return 1 if plan.momentum else 0


def _free(device: torch.device) -> int | None:
    if device.type == "cpu":
        return free_bytes()
    return torch.cuda.get_device_properties(device).total_memory  # what is cached can be had again
