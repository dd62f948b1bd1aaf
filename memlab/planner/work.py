"""The work of one optimizer step of a plan, for any micro-batch size and K."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import lru_cache

from memlab.catalog import MODELS
from memlab.memory.cards import Card, NumberFormat
from memlab.plan import Plan
from memlab.planner.operations import PARTS, Operation, OperationCounter
from memlab.planner.shallow import DEPTHS, Shallow, as_custom, may_be_shallow
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
    times: int = 1
    """How many such operations there are; negative in a sum that takes them away."""

    def seconds(self, micro_batch_size: int, card: Card) -> float:
        """Return the roofline: arithmetic at the published peak or traffic at the published bandwidth."""
        flops, moved = (
            max(0.0, start + slope * micro_batch_size) for start, slope in (self.flops, self.moved_bytes)
        )
        each = max(flops / card.flops(self.number_format), moved / card.bandwidth, LAUNCH_SECONDS)
        return self.times * each


@dataclass(frozen=True, eq=False)
class Work:
    """The operations of a step, by part."""

    lines: Mapping[str, tuple[Line, ...]]

    def flops(self, micro_batch_size: int, steps: int) -> float:
        """Return the floating-point operations of an optimizer step of `steps` micro-steps on one rank."""
        first, later, update = (
            sum(line.times * (line.flops[0] + line.flops[1] * micro_batch_size) for line in self.lines[part])
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
                line.times
                * (line.flops[0] + line.flops[1] * micro_batch_size)
                / card.flops(line.number_format)
                for line in self.lines[part]
            )
            for part in PARTS
        )
        return first + (steps - 1) * later + update


def work_of(plan: Plan, card: Card) -> Work:
    """Count the work of `plan` by `card`'s kernels; its micro-batch size, K and ranks do not matter."""
    capability = card.compute_capability
    alone = replace(plan.of_one_rank, micro_batch_size=SIZES[0], gradient_accumulation_steps=1, steps=2)
    # How the update is made does not change the micro-steps, nor recomputation the update.
    micro_steps = _micro_steps(replace(alone, foreach=None, fused=None), capability)
    update = _update(replace(alone, activation_checkpointing="none"), capability)
    return Work({**micro_steps, "update": update})


@lru_cache(maxsize=64)
def _micro_steps(plan: Plan, capability: tuple[int, int]) -> dict[str, tuple[Line, ...]]:
    def counted(layers: int | None) -> dict[str, tuple[Line, ...]]:
        small, large = (
            _counted(replace(plan, micro_batch_size=size), capability, layers, windows=(2,)) for size in SIZES
        )
        return {part: _lines(small[part], large[part]) for part in ("first", "later")}

    return _at_depth(plan, counted)


@lru_cache(maxsize=64)
def _update(plan: Plan, capability: tuple[int, int]) -> tuple[Line, ...]:
    def counted(layers: int | None) -> dict[str, tuple[Line, ...]]:
        # The first step makes the optimizer's state; all others do what the second does.
        second = _counted(plan, capability, layers, windows=(1, 1))["update"]
        return {"update": _lines(second, second)}

    return _at_depth(plan, counted)["update"]


def _at_depth(
    plan: Plan, counted: Callable[[int | None], dict[str, tuple[Line, ...]]]
) -> dict[str, tuple[Line, ...]]:
    """Return what `counted` gives for all of the model's blocks, by counting few of them where they are alike."""
    if not may_be_shallow(plan):
        return counted(None)
    two, three = map(counted, DEPTHS)
    more = MODELS[plan.model].layers - DEPTHS[0]
    return {part: _deepened(two[part], three[part], more) for part in two}


def _deepened(two: tuple[Line, ...], three: tuple[Line, ...], more: int) -> tuple[Line, ...]:
    """Return two blocks' lines and `more` times what the third adds: to each line, or as lines of its own."""
    if len(two) == len(three):  # operations on lists of all weights
        return tuple(
            replace(
                a,
                flops=_further(a.flops, b.flops, more),
                moved_bytes=_further(a.moved_bytes, b.moved_bytes, more),
            )
            for a, b in zip(two, three, strict=True)
        )
    before, after = Counter(two), Counter(three)
    times = {line: before[line] + more * (after[line] - before[line]) for line in before | after}
    return tuple(replace(line, times=number) for line, number in times.items() if number)


def _further(two: tuple[float, float], three: tuple[float, float], more: int) -> tuple[float, float]:
    start, slope = (a + more * (b - a) for a, b in zip(two, three, strict=True))
    return start, slope


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
    plan: Plan, capability: tuple[int, int], layers: int | None, *, windows: tuple[int, ...]
) -> dict[str, list[Operation]]:
    """Run the loop on tensors without data, steps of `windows` micro-batches each, and list the last one's work.

    `layers` None: all blocks of the model.
    """
    device = card_device()
    counter = OperationCounter(device)
    workload = workload_for(plan) if layers is None else Shallow(plan, layers)
    given = (plan, None) if layers is None else (as_custom(plan), workload)
    # What the samples say does not matter, and a text may be too short for so many different ones.
    batch = workload.batch([number % len(workload) for number in range(plan.micro_batch_size)])
    with ExitStack() as stack:
        stack.enter_context(refusals_explained())
        stack.enter_context(predicting_for(capability))
        stack.enter_context(weight_cache())
        stack.enter_context(without_data(DatalessMode(device, cuda.RULES)))
        with closing(Trainer(*given, meter=counter, dataless_device=device)) as trainer:
            for micro_steps in windows:
                trainer.run(Window.of(workload, [batch] * micro_steps))
                trainer.steps_done += 1
    return counter.operations
