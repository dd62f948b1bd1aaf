"""The work of one optimizer step of a plan, for any micro-batch size and K."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import lru_cache

from memlab.memory.cards import Card, NumberFormat
from memlab.plan import Plan
from memlab.planner.operations import PARTS, Operation, OperationCounter
from memlab.predicting.card_device import card_device
from memlab.predicting.dataless import DatalessMode, without_data
from memlab.predicting.refusals import refusals_explained
from memlab.predicting.rules import cuda
from memlab.predicting.rules.autocast import weight_cache
from memlab.predicting.rules.composites import predicting_for
from memlab.training.loop import Trainer
from memlab.training.window import Window
from memlab.workload import workload_for

SIZES = (2, 4)
"""Micro-batch sizes that are counted: shapes, and so work and traffic, grow in a straight line from there."""
LAUNCH_SECONDS = 5e-6
"""The least that an operation takes: what the host needs to submit a kernel, 4 to 6 us as measured at
https://susun-blog.com/blog/pegainfer-3-cuda-graph."""


@dataclass(frozen=True)
class Line:
    """An operation's work over the micro-batch size."""

    number_format: NumberFormat
    flops: tuple[float, float]
    """At size 0, and for each sample."""
    moved_bytes: tuple[float, float]

    def seconds(self, micro_batch_size: int, card: Card) -> float:
        """Return the roofline: arithmetic at the published peak or traffic at the published bandwidth."""
        flops, moved = (
            max(0.0, start + slope * micro_batch_size) for start, slope in (self.flops, self.moved_bytes)
        )
        return max(flops / card.flops(self.number_format), moved / card.bandwidth, LAUNCH_SECONDS)


@dataclass(frozen=True, eq=False)
class Work:
    """The operations of a step, by part."""

    lines: Mapping[str, tuple[Line, ...]]

    def flops(self, micro_batch_size: int, steps: int) -> float:
        """Return the floating-point operations of an optimizer step of `steps` micro-steps on one rank."""
        first, later, update = (
            sum(line.flops[0] + line.flops[1] * micro_batch_size for line in self.lines[part])
            for part in PARTS
        )
        return first + (steps - 1) * later + update

    def seconds(self, micro_batch_size: int, steps: int, card: Card) -> float:
        """Return what an optimizer step would take at least: an order of plans, and no timing."""
        first, later, update = (
            sum(line.seconds(micro_batch_size, card) for line in self.lines[part]) for part in PARTS
        )
        return first + (steps - 1) * later + update

    def arithmetic_seconds(self, micro_batch_size: int, steps: int, card: Card) -> float:
        """Return the arithmetic of a step alone, at the peak of its number formats."""
        first, later, update = (
            sum(
                (line.flops[0] + line.flops[1] * micro_batch_size) / card.flops(line.number_format)
                for line in self.lines[part]
            )
            for part in PARTS
        )
        return first + (steps - 1) * later + update


def work_of(plan: Plan, card: Card) -> Work:
    """Count the work of `plan` by `card`'s kernels; its micro-batch size, K and ranks do not matter."""
    capability = card.compute_capability
    alone = replace(plan, micro_batch_size=SIZES[0], gradient_accumulation_steps=1, world_size=1, steps=2)
    # How the update is made does not change the micro-steps, nor recomputation the update.
    micro_steps = _micro_steps(replace(alone, foreach=None, fused=None), capability)
    update = _update(replace(alone, activation_checkpointing="none"), capability)
    return Work({**micro_steps, "update": update})


@lru_cache(maxsize=64)
def _micro_steps(plan: Plan, capability: tuple[int, int]) -> dict[str, tuple[Line, ...]]:
    small, large = (
        _counted(replace(plan, micro_batch_size=size), capability, windows=(2,)) for size in SIZES
    )
    return {part: _lines(small[part], large[part]) for part in ("first", "later")}


@lru_cache(maxsize=64)
def _update(plan: Plan, capability: tuple[int, int]) -> tuple[Line, ...]:
    # The first step makes the optimizer's state; all others do what the second does.
    second = _counted(plan, capability, windows=(1, 1))["update"]
    return _lines(second, second)


def _lines(small: list[Operation], large: list[Operation]) -> tuple[Line, ...]:
    assert [it.name for it in small] == [it.name for it in large]
    return tuple(map(_line, small, large))


def _line(small: Operation, large: Operation) -> Line:
    return Line(
        small.number_format,
        _through(small.flops, large.flops),
        _through(small.moved_bytes, large.moved_bytes),
    )


def _through(small: int, large: int) -> tuple[float, float]:
    slope = (large - small) / (SIZES[1] - SIZES[0])
    return small - slope * SIZES[0], slope


def _counted(
    plan: Plan, capability: tuple[int, int], *, windows: tuple[int, ...]
) -> dict[str, list[Operation]]:
    """Run the loop on tensors without data, steps of `windows` micro-batches each, and list the last one's work."""
    device = card_device()
    counter = OperationCounter(device)
    workload = workload_for(plan)
    # What the samples say does not matter, and a text may be too short for so many different ones.
    batch = workload.batch([number % len(workload) for number in range(plan.micro_batch_size)])
    with ExitStack() as stack:
        stack.enter_context(refusals_explained())
        stack.enter_context(predicting_for(capability))
        stack.enter_context(weight_cache())
        stack.enter_context(without_data(DatalessMode(device, cuda.RULES)))
        with closing(Trainer(plan, meter=counter, dataless_device=device)) as trainer:
            for micro_steps in windows:
                trainer.run(Window.of(workload, [batch] * micro_steps))
                trainer.steps_done += 1
    return counter.operations
