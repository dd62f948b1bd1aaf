"""Windows: the samples of one optimizer step, cut into micro-batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from typing_extensions import Self

from memlab.data import Batch
from memlab.plan import Plan
from memlab.training.checks import checked_batch
from memlab.training.surroundings import plain_torch
from memlab.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Window:
    """One rank's part of an optimizer step: K micro-batches, fewer in the tail of an epoch. On the host."""

    micro_batches: tuple[Batch, ...]
    items: int
    """Loss terms in these micro-batches (labels that are not ignored)."""
    samples: int
    """Samples of this optimizer step, over all ranks."""
    epoch: int = 0
    divisors: tuple[float, ...] = ()
    """What the loss sum of each micro-batch is divided by: the items of the whole window."""
    stand_in: Batch | None = None
    """Samples of other ranks, where this one has none in the last micro-step: computed with weight 0,
    for the ranks exchange gradients together or not at all."""

    @classmethod
    def of(
        cls, workload: Workload, micro_batches: Sequence[Batch], *, samples: int | None = None, epoch: int = 0
    ) -> Self:
        """Return `micro_batches` of one rank as a window; raise PlanError where one is no tuple of tensors.

        `samples` counts those of all ranks; None: there is no other rank.
        """
        batches = tuple(checked_batch(workload, batch) for batch in micro_batches)
        items = sum(workload.count(batch) for batch in batches)
        return cls(
            micro_batches=batches,
            items=items,
            samples=sum(len(batch[0]) for batch in batches) if samples is None else samples,
            epoch=epoch,
            divisors=(items,) * len(batches),
        )


def windows(workload: Workload, plan: Plan, rank: int = 0) -> Iterator[Window]:
    """Yield `rank`'s windows, epoch after epoch without end; each is made when it is asked for.

    Every sample comes once an epoch. Window n holds the same samples, over all ranks, for equal seeds
    and equal global batches, however these are cut. The last window of an epoch is short, not dropped.
    """
    for epoch in count():
        order = epoch_order(len(workload), plan.seed, epoch)
        for first in range(0, len(order), plan.global_batch_size):
            indices = order[first : first + plan.global_batch_size]
            mine = shares(indices, plan.micro_batch_size, rank, plan.world_size)
            with plain_torch():  # a batch made in FP64, or on a GPU, would be another
                micro_batches = [workload.batch(share) for share in mine]
                window = Window.of(workload, micro_batches, samples=len(indices), epoch=epoch)
                if lacking := lacking_share(indices, plan.micro_batch_size, rank, plan.world_size):
                    window = replace(window, stand_in=checked_batch(workload, workload.batch(lacking)))
            yield window


def epoch_order(samples: int, seed: int, epoch: int) -> list[int]:
    """Return the numbers of all samples, shuffled by `seed` and `epoch` alone."""
    return np.random.default_rng((seed, epoch)).permutation(samples).tolist()


def shares(indices: list[int], micro_batch_size: int, rank: int, world_size: int) -> Iterator[list[int]]:
    """Yield what `rank` takes of `indices`, one micro-batch after the other.

    The ranks share the last micro-step of a short window evenly; one without a sample has no such micro-step.
    """
    together = micro_batch_size * world_size
    for first in range(0, len(indices), together):
        if share := _share(indices[first : first + together], rank, world_size):
            yield share


def lacking_share(indices: list[int], micro_batch_size: int, rank: int, world_size: int) -> list[int]:
    """Return the samples of the last micro-step, fewer than there are ranks, where `rank` has none of them."""
    together = micro_batch_size * world_size
    last = indices[(len(indices) - 1) // together * together :]
    return [] if _share(last, rank, world_size) else last


def _share(micro_step: list[int], rank: int, world_size: int) -> list[int]:
    start, stop = (len(micro_step) * place // world_size for place in (rank, rank + 1))
    return micro_step[start:stop]
