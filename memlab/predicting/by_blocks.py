"""Trace a model whose blocks are alike by a few of them, exactly.

The same plan is traced twice, with so many blocks and with one more; what the second has more tells how it goes
on (`repeats`). That it does is checked: shortened by the same rule, the second must be the first. Where it is
not, all blocks are traced.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from memlab.memory.meter import Meter
from memlab.plan import Plan
from memlab.predicting.blocks import block_list, cut, giving
from memlab.predicting.dataless import DatalessMode
from memlab.predicting.ranks import dataless_sync_for
from memlab.predicting.repeats import Irregular, Layout, Numbers, lengthened, pieces
from memlab.predicting.second_step import GradientNotes, MicroSteps, may_be_told
from memlab.predicting.stream import SIZE, Calls, Names, Stream, in_order, signatures, stream_of, traces
from memlab.trace import Trace
from memlab.training.loop import Trainer
from memlab.training.surroundings import by_default_on, plain_torch
from memlab.training.window import Window
from memlab.workload import Workload, prepare_model

PERIODS = 3
"""Repeats in the shallower of the two traces: first, last and one between."""
AHEAD = {"fsdp2": 1}
"""More of them: while one block computes, FSDP2 gathers the weights of the next."""


@dataclass(frozen=True)
class Recorded:
    """What the steps of a plan allocate, step by step."""

    parts: tuple[Trace, ...]
    notices: tuple[str, ...]
    calls: tuple[Calls, ...] = ()
    by_blocks: bool = False
    """Whether a few blocks told of all."""


def recorded(
    plan: Plan,
    workload: Workload,
    steps: Sequence[Window],
    mode: DatalessMode,
    *,
    with_calls: bool = False,
    in_full: bool = False,
) -> Recorded:
    """Train `plan` on `steps` within `mode`, metered; `with_calls` notes the operators too.

    `in_full` traces also what the first step tells of the second.
    """
    meter = GradientNotes(device=mode.device, dataless=mode)
    parts, calls = [], []
    told = not in_full and may_be_told(plan, steps)
    micro_steps = None
    with closing(meter), closing(_trainer(plan, workload, meter, mode)) as trainer:
        mode.ledger = meter.ledger  # a meter begins a new one where it learns its device from the model
        for window in steps:
            mode.calls = [] if with_calls else None
            if micro_steps is None:
                trainer.run(window)
                part, called = meter.last_step, tuple(mode.calls or ())
            else:
                part, called = micro_steps.update_alone(trainer, window, meter, mode)
            trainer.steps_done += 1
            micro_steps = MicroSteps.of(meter, part, called) if told and not parts else None
            parts.append(in_order(part) if mode.on_host else part)
            calls.append(called)
            mode.calls = None
        notices = tuple(notice.message for notice in trainer.take_notices())
    return Recorded(tuple(parts), notices, tuple(calls))


def _trainer(plan: Plan, workload: Workload, meter: Meter, mode: DatalessMode) -> Trainer:
    sync = dataless_sync_for(plan, mode.device)
    return Trainer(plan, workload, meter=meter, dataless_device=mode.device, sync=sync)


def recorded_by_blocks(
    plan: Plan, workload: Workload, steps: Sequence[Window], mode: DatalessMode
) -> Recorded:
    """Return what `recorded` does, from traces of some of the blocks where these tell of all."""
    if plan.model == "custom":  # what its forward does between blocks may differ from one to the next
        return recorded(plan, workload, steps, mode)
    with plain_torch(), by_default_on(mode.device):
        model = prepare_model(workload, plan)
    period, periods = max(1, plan.checkpoint_every), PERIODS + AHEAD.get(plan.data_parallel, 0)
    enough = _first_two(len(workload.blocks(model)), period, periods) is not None
    if enough and (blocks := block_list(workload, model)) is not None:
        whole = Whole(model, blocks, period, periods)
        try:
            return _told(whole, (_cut(whole, depth, plan, workload, steps, mode) for depth in whole.depths()))
        except Irregular:
            pass
    return recorded(plan, giving(workload, lambda: model), steps, mode)


@dataclass(frozen=True)
class Whole:
    """A model with all its blocks, every `period`-th of which may be treated in another way."""

    model: nn.Module
    blocks: nn.ModuleList
    period: int
    periods: int
    """In the shallowest trace."""

    def depths(self) -> Iterator[int]:
        """Yield numbers of blocks to trace, while they are together fewer than all."""
        first_two = _first_two(len(self.blocks), self.period, self.periods)
        if first_two is None:
            return
        depth, traced = first_two[0], first_two[0]
        while traced < len(self.blocks):
            yield depth
            depth += self.period
            traced += depth

    def block_names(self) -> list[str]:
        """Return the qualified names of the blocks."""
        names = {module: name for name, module in self.model.named_modules()}
        return [names[block] for block in self.blocks]

    def names(self, root: str) -> tuple[str, ...]:
        """Return the names of all modules, as a meter lists them; the model itself goes by its class, `root`."""
        return ("", *(name or root for name, _ in self.model.named_modules()))


def _first_two(blocks: int, period: int, periods: int) -> tuple[int, int] | None:
    """Return how many of `blocks` the first two traces have; None where that is not less than all of them."""
    depth = blocks % period + periods * period
    return None if 2 * depth + period >= blocks else (depth, depth + period)


@dataclass(frozen=True)
class Cut:
    """The trace of a model's first blocks."""

    depth: int
    recorded: Recorded

    @property
    def seen(self) -> tuple[str, ...]:
        """Names of the modules that ran: those of the model, then others that were met on the way."""
        return self.recorded.parts[-1].module_names


def _cut(
    whole: Whole, depth: int, plan: Plan, workload: Workload, steps: Sequence[Window], mode: DatalessMode
) -> Cut:
    shallow = giving(workload, lambda: cut(whole.model, whole.blocks, depth))
    return Cut(depth, recorded(plan, shallow, steps, mode, with_calls=True))


def _told(whole: Whole, cuts: Iterator[Cut]) -> Recorded:
    """Return what two cuts in a row tell of the whole; raise Irregular where none do."""
    shallow = next(cuts, None)
    said = Irregular("too few blocks to leave some out")
    for deep in cuts:
        assert shallow is not None
        try:
            return _deepened(whole, shallow, deep)
        except Irregular as error:
            shallow, said = deep, error
    raise said


def _deepened(whole: Whole, shallow: Cut, deep: Cut) -> Recorded:
    if shallow.recorded.notices != deep.recorded.notices:
        raise Irregular("the notices depend on the number of blocks")
    block_names = whole.block_names()
    numbers: dict[Any, int] = {}
    streams = [
        stream_of(
            each.recorded.parts,
            each.recorded.calls,
            Names.of(each.seen, block_names[: each.depth], whole.period),
            numbers,
        )
        for each in (shallow, deep)
    ]
    of_model = whole.names(deep.seen[1])  # FSDP2 gives the model another class
    names = (*of_model, *_met_on_the_way(deep.seen, of_model, block_names[deep.depth :]))
    more = (len(whole.blocks) - deep.depth) // whole.period
    parts = _deeper(*streams, more, Names.of(names, block_names, whole.period), names)
    return Recorded(tuple(parts), deep.recorded.notices, by_blocks=True)


def _deeper(shallow: Stream, deep: Stream, more: int, whole: Names, names: Sequence[str]) -> list[Trace]:
    if not shallow.names.kinds == deep.names.kinds == whole.kinds:
        raise Irregular("the modules outside of the blocks depend on their number")
    first, second = signatures(shallow, deep)
    parts = pieces(first, second)
    layout = Layout.of(parts)
    births = layout.targets(deep.refers_to)
    modules = deep.names.layout.targets(deep.module)

    def with_more(units: int) -> tuple[Numbers, Numbers, Numbers]:
        source, refers = lengthened(parts, births, layout, units)
        _, module = lengthened(parts, modules, deep.names.layout, units)
        return source, refers, module

    source, refers, module = with_more(-1)
    same = (second[source], refers, module), (first, shallow.refers_to, shallow.module)
    if not all(np.array_equal(one, other) for one, other in zip(*same, strict=True)):
        raise Irregular("shortened by a period, the deeper trace is not the shallower one")
    growth = np.zeros(len(second), np.int64)
    growth[source] = deep.columns[source, SIZE] - shallow.columns[:, SIZE]
    if any(growth[part.first : part.first + part.length].any() for part in parts if part.units):
        raise Irregular("what each block makes depends on their number")
    source, refers, module = with_more(more)
    columns = deep.columns[source]
    columns[:, SIZE] += more * growth[source]
    index = np.full(int(whole.places.max()) + 1, -1)
    index[whole.places] = np.arange(len(whole.places))
    start = deep.start + more * (deep.start - shallow.start)
    return traces(columns, refers, index[module], start, names)


def _met_on_the_way(seen: Sequence[str], whole: Sequence[str], missing: Sequence[str]) -> tuple[str, ...]:
    """Return what a trace saw beside the modules of the cut model."""
    prefixes = tuple(f"{name}." for name in missing)
    of_the_model = [name for name in whole if not f"{name}.".startswith(prefixes)]
    return tuple(seen[len(of_the_model) :])
