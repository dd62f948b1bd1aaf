"""Predict what a plan needs: the training loop on tensors without data, then the allocator model."""

import os
from functools import lru_cache

import torch

from memlab.device import resolve_device
from memlab.engine.environment import environment
from memlab.memory.allocator import AllocatorError, Replay
from memlab.memory.beyond import beyond_allocator
from memlab.memory.cards import Card, CardError
from memlab.memory.cards import card as card_named
from memlab.plan import DataParallel, Plan, PlanError
from memlab.predicting.replaying import replay
from memlab.predicting.steps import LOOKED_AT, Steps, steps_to_trace
from memlab.predicting.trial import Trial, trial
from memlab.run import Rank, Run
from memlab.units import format_bytes
from memlab.workload import Workload, workload_for

LEAVES_OUT = "the CUDA context; workspaces of cuBLAS, cuDNN and of reductions; memory of other processes"
"""What no operation shows: `memlab.memory.beyond` has sizes."""


def predict(
    plan: Plan, card: str | None = None, workload: Workload | None = None, *, progress: bool = True
) -> Run:
    """Return what `plan` would need, without training it.

    On a CPU plan without `card` it is what `measure` finds, to the byte. With one, CUDA's rules and a
    model of its allocator give peak, `peak_allocated` and `peak_reserved`, and whether they fit the
    card; `environment` says what is left out. What takes more than ten seconds says so on standard error,
    unless `progress` is False; an interrupt ends it. Raises CardError for a card that is not in the table,
    PlanError where `plan` is none.
    """
    if not isinstance(plan, Plan):
        raise PlanError(
            f"{plan!r} is no Plan: say what to predict as in predict(Plan(model='gpt2'), card='t4')."
        )
    target = card_named(card) if card is not None else _card_of(resolve_device(plan.device))
    if workload is not None:
        return _predicted(plan, target, workload, progress)
    return _remembered(plan, target, progress)


@lru_cache(maxsize=256)
def _remembered(plan: Plan, card: Card | None, progress: bool) -> Run:
    return _predicted(plan, card, workload_for(plan), progress)


def _card_of(device: torch.device) -> Card | None:
    """Return the GPU at hand as a row of the table; None for the CPU."""
    if device.type == "cpu":
        return None
    name = torch.cuda.get_device_name(device)
    try:
        return card_named(name)
    except CardError:
        raise PlanError(
            f"device={str(device)!r} is a {name}, which is not in the table of cards; name the nearest that is, as in "
            "predict(plan, card='a100-80gb')."
        ) from None


def _predicted(plan: Plan, card: Card | None, workload: Workload, progress: bool) -> Run:
    steps = steps_to_trace(plan, workload)
    capability = None if card is None else card.compute_capability
    found = trial(plan, workload, steps.traced, capability, progress=progress)
    held = _by_the_cpu(found) if card is None else _by_the_allocator(found, card)
    return Run(
        plan=plan,
        source="predicted",
        losses=(),
        peak=found.peak,
        peak_allocated=held[0],
        peak_reserved=held[1],
        fits=held[2],
        peaks_by_phase=found.peaks_by_phase,
        step_peaks=_step_peaks(plan, steps, found.step_peaks),
        environment={**_environment(card), **_assumptions(plan, steps)},
        ranks=tuple(Rank(rank=rank, pid=os.getpid(), peak=found.peak) for rank in range(plan.world_size)),
        trace=found.trace,
        notices=(*found.notices, *_notices(plan, card)),
    )


def _by_the_cpu(found: Trial) -> tuple[int, int, bool]:
    return found.peak.total, found.peak.total, True


def _by_the_allocator(found: Trial, card: Card) -> tuple[int, int, bool]:
    """Return peak allocated, peak reserved, and whether the allocator was served within the card.

    Where it was not, the peaks are those of a card without an end.
    """
    available = card.memory_bytes - beyond_allocator(card)["cuda_context_low"]
    within = _replayed(found, available)
    if within is not None and within.fits:
        return within.peak_allocated, within.peak_reserved, True
    endless = replay(found.trace)
    return endless.peak_allocated, endless.peak_reserved, False


def _replayed(found: Trial, limit_bytes: int) -> Replay | None:
    try:
        return replay(found.trace, limit_bytes)
    except AllocatorError:  # what is there before the first step does not fit
        return None


def _step_peaks(plan: Plan, steps: Steps, peaks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the peak of each step of the run, where later ones repeat the second; else of those traced."""
    if not steps.uniform:
        return peaks
    return peaks + peaks[-1:] * (plan.steps - len(peaks))


def _environment(card: Card | None) -> dict[str, str]:
    facts = environment("cpu")
    if card is None:
        return facts
    facts.update(
        device=f"card:{card.name}",
        device_name=card.title,
        device_memory=format_bytes(card.memory_bytes),
        compute_capability="{}.{}".format(*card.compute_capability),
        leaves_out=LEAVES_OUT,
        cuda_context=format_bytes(beyond_allocator(card)["cuda_context_low"])
        + ", taken off the card's memory",
    )
    return facts


def _assumptions(plan: Plan, steps: Steps) -> dict[str, str]:
    """Return what the prediction takes for granted, by its subject."""
    taken = {}
    if not steps.uniform:
        seen = "all steps" if steps.looked_at >= plan.steps else f"the first {LOOKED_AT} steps"
        taken["batches"] = f"micro-batches differ in shape; the largest of {seen} is in it"
    if plan.precision == "fp16-mixed":
        taken["loss_scale"] = "no step is skipped for an infinite gradient"
    if plan.world_size > 1:
        taken["ranks"] = _RANKS[plan.data_parallel]
    return taken


_RANKS: dict[DataParallel, str] = {
    "ddp": "each as the first one, with DDP's buckets; NCCL's own buffers are left out",
    "zero1": "each as the one with the largest share of the optimizer's state, with DDP's buckets; NCCL's own buffers "
    "are left out",
    "fsdp2": "each as the first one, with the weights that FSDP2 gathers; NCCL's own buffers are left out",
}


def _notices(plan: Plan, card: Card | None) -> tuple[str, ...]:
    if card is None or card.has_bf16 or not plan.precision.startswith("bf16"):
        return ()
    return (
        f"{card.title} has no BF16 of its own and emulates precision={plan.precision!r} slowly: choose 'fp16-mixed', "
        "or a card of compute capability 8.0 or higher.",
    )
