"""Which steps a prediction traces: as few as show every peak of the run."""

import math
from dataclasses import dataclass, replace
from itertools import islice

from memlab.data import Batch
from memlab.plan import Plan
from memlab.training.window import Window, windows
from memlab.workload import Workload

LOOKED_AT = 200
"""Windows in which a larger micro-batch is looked for, where they differ."""


@dataclass(frozen=True)
class Steps:
    """The windows to trace."""

    traced: tuple[Window, ...]
    """The first two of the run, or three; another that holds a larger micro-batch than the second, or more of them."""
    uniform: bool
    """Whether every micro-batch of them has the same shapes, and none is the end of an epoch: then later steps repeat
    the last."""
    looked_at: int
    """Windows that were compared."""


def steps_to_trace(plan: Plan, workload: Workload) -> Steps:
    """Return what to trace of the first rank's run.

    Adam's state exists from the second step on, and a third repeats it; with more than two
    micro-batches of equal shapes the third repeats the second.
    """
    coming = map(_with_stand_in, windows(workload, plan))
    first = tuple(islice(coming, min(_not_alike(plan), plan.steps)))
    alike = micro_batches_to_trace(plan)
    # The second may be the short end of an epoch, and the third whole again.
    unequal = len({tuple(map(_shapes, window.micro_batches[:alike])) for window in first}) > 1
    may_differ = unequal or plan.model == "custom" or plan.data == "ragged-text"
    later = tuple(islice(coming, max(0, min(plan.steps, LOOKED_AT) - len(first)))) if may_differ else ()
    all_shapes = {_shapes(batch) for window in (*first, *later) for batch in window.micro_batches}
    if len(all_shapes) == 1 and not unequal:
        return Steps(tuple(_cut(window, alike) for window in first), True, len(first) + len(later))
    # Not the first: the optimizer's state is not there yet. The earliest of equals.
    largest = max((*first[1:], *later), key=_largest, default=first[0])
    more = () if any(largest is window for window in first) else (largest,)
    return Steps((*first, *more), False, len(first) + len(later))


def _not_alike(plan: Plan) -> int:
    """Return how many steps come before the first that repeats the one before it.

    Gradients that stay in DDP's buckets keep the old ones alive while these are laid out anew, in the second step.
    """
    return 3 if plan.gradient_as_bucket_view and plan.zero_grad == "in_place" else 2


def micro_batches_to_trace(plan: Plan) -> int:
    """Return how many micro-batches show all of a window.

    The second adds to gradients that are there, and so do later ones; with FSDP2 the last scatters whole gradients
    that those before it kept.
    """
    return 3 if plan.data_parallel == "fsdp2" else 2


def _with_stand_in(window: Window) -> Window:
    """Return `window` with the samples that this rank computes in the place of others."""
    if window.stand_in is None:
        return window
    batches = (*window.micro_batches, window.stand_in)
    divisors = (*window.divisors, math.inf)
    return replace(window, micro_batches=batches, items=max(1, window.items), divisors=divisors)


def _shapes(batch: Batch) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(tensor.shape) for tensor in batch)


def _largest(window: Window) -> tuple[int, int]:
    batches = [sum(tensor.numel() for tensor in batch) for batch in window.micro_batches]
    return max(batches), len(batches)


def _cut(window: Window, micro_batches: int) -> Window:
    return replace(window, micro_batches=window.micro_batches[:micro_batches])
