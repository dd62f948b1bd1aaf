"""What ranks exchange, counted: DDP's communication hook sees every bucket, FSDP2 asks `shared_exchange`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from memlab.events import StepCommunication
from memlab.training.backend_thread import Made
from memlab.training.metering import StepMeter

Kind = Literal["all-reduce", "all-gather", "reduce-scatter"]


@dataclass
class Collective:
    """One call in which all ranks take part."""

    kind: Kind
    micro_step: int
    size: int
    """Bytes of the buffer that holds what is of all ranks."""
    begin: float
    end: float = 0.0


class Exchange:
    """Averages DDP's buckets over the ranks, as DDP does without a hook, and keeps count of every collective."""

    def __init__(self, meter: StepMeter, rank: int, world_size: int) -> None:
        self._meter, self._rank, self._world_size = meter, rank, world_size
        self._layout: tuple[int, ...] = ()
        self.begin_step()

    def begin_step(self) -> None:
        """Forget the last step, also one that broke off."""
        self._collectives: list[Collective] = []
        self._micro_steps = 0
        self.complete = True

    def begin_micro_step(self, *, exchanging: bool) -> None:
        """Count what follows for the next micro-step; `exchanging`: its backward shall send every bucket."""
        self._micro_steps += 1
        self.complete = not exchanging

    def begins(self, kind: Kind, buffer: Tensor) -> Collective:
        """Count a collective that begins now, through `buffer`, which the meter hears of; `ended` is its end."""
        self._meter.exchange(buffer)
        one = Collective(kind, self._micro_steps - 1, buffer.numel() * buffer.element_size(), _now())
        self._collectives.append(one)
        return one

    def hook(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Start the all-reduce of one bucket: DDP calls it in backward as soon as its gradients are there."""
        buffer = bucket.buffer()
        self.complete = self.complete or bucket.is_last()
        one = self.begins("all-reduce", buffer)
        buffer.div_(self._world_size)
        future = dist.all_reduce(buffer, async_op=True).get_future()
        return future.then(partial(_reduced, one))

    def of_step(self, step: int, checksum: int | None) -> StepCommunication:
        """Return what this rank exchanged in the step that ended, and begin the next."""
        sizes, gathers = self._sizes("all-reduce", "reduce-scatter"), self._sizes("all-gather")
        layouts = [self._layout, *(tuple(of_micro_step) for of_micro_step in sizes if of_micro_step)]
        self._layout = layouts[-1]
        found = StepCommunication(
            step=step,
            rank=self._rank,
            calls=tuple(map(len, sizes)),
            bytes=tuple(map(sum, sizes)),
            gathers=tuple(map(len, gathers)),
            gathered_bytes=tuple(map(sum, gathers)),
            buckets=self._layout,
            rebuilt=any(one and one != other for one, other in pairwise(layouts)),
            seconds=_covered([(one.begin, one.end) for one in self._collectives]),
            all_reduces=self._spans("all-reduce"),
            all_gathers=self._spans("all-gather"),
            reduce_scatters=self._spans("reduce-scatter"),
            checksum=checksum,
        )
        self.begin_step()
        return found

    def _sizes(self, *kinds: Kind) -> list[list[int]]:
        """Return the bytes of each collective of `kinds`, in a list for each micro-step."""
        sizes: list[list[int]] = [[] for _ in range(self._micro_steps)]
        for one in self._collectives:
            if one.kind in kinds:
                sizes[one.micro_step].append(one.size)
        return sizes

    def _spans(self, kind: Kind) -> tuple[tuple[int, float, float], ...]:
        return tuple((one.micro_step, one.begin, one.end) for one in self._collectives if one.kind == kind)


_now = time.perf_counter


def ended(one: Collective) -> None:
    """Note that a collective ends now."""
    one.end = _now()


def _reduced(one: Collective, future: torch.futures.Future[Any]) -> Tensor:
    ended(one)
    return future.value()[0]


def _covered(spans: list[tuple[float, float]]) -> float:
    """Return for how long at least one of `spans` was open; they come in order of their beginnings.

    >>> _covered([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    4.0
    """
    seconds, reached = 0.0, float("-inf")
    for begin, end in spans:
        seconds += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return seconds


@contextmanager
def what_stays() -> Iterator[list[Tensor]]:
    """Give, at the end, a view of each storage that is made within and outlives it: DDP's buckets."""
    found: list[Tensor] = []
    with Made() as made:
        yield found
    for storage, _ in made.storages:
        if (alive := storage()) is not None:
            found.append(torch.empty(0, dtype=torch.uint8, device=alive.device).set_(alive))


@torch.no_grad()
def checksum(model: torch.nn.Module) -> int:
    """Return the sum of the bits of all weights, taken as whole numbers: equal weights have equal sums."""
    return sum(
        int(weight.detach().reshape(-1).view(_WHOLE[weight.element_size()]).sum(dtype=torch.int64))
        for weight in model.parameters()
    )


_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
