"""Trace a model whose blocks are alike by a few of them, exactly.

The same plan is traced twice, with so many blocks and with one more; what the second has more tells how it goes
on (`repeats`). That it does is checked: shortened by the same rule, the second must be the first. Where it is
not, all blocks are traced.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from memlab.memory.meter import Meter
from memlab.plan import Plan
from memlab.predicting.blocks import block_list, cut, giving
from memlab.predicting.dataless import DatalessMode
from memlab.predicting.repeats import Irregular, Layout, Numbers, lengthened, pieces
from memlab.predicting.stream import SIZE, Calls, Names, Stream, in_order, signatures, stream_of, traces
from memlab.trace import Trace
from memlab.training.loop import Trainer
from memlab.training.surroundings import plain_torch
from memlab.training.window import Window
from memlab.workload import Workload, prepare_model

PERIODS = 3
"""Repeats in the shallower of the two traces: first, last and one between."""


@dataclass(frozen=True)
class Recorded:
    """What the steps of a plan allocate, step by step."""

    parts: tuple[Trace, ...]
    notices: tuple[str, ...]
    calls: tuple[Calls, ...] = ()


def recorded(
    plan: Plan, workload: Workload, steps: Sequence[Window], mode: DatalessMode, *, with_calls: bool = False
) -> Recorded:
    """Train `plan` on `steps` within `mode`, metered; `with_calls` notes the operators too."""
    meter = Meter(device=mode.device, dataless=mode)
    parts, calls = [], []
    with closing(meter), closing(_trainer(plan, workload, meter, mode)) as trainer:
        mode.ledger = meter.ledger  # a meter begins a new one where it learns its device from the model
        for window in steps:
            mode.calls = [] if with_calls else None
            trainer.run(window)
            trainer.steps_done += 1
            parts.append(in_order(meter.last_step) if mode.on_host else meter.last_step)
            calls.append(mode.calls or ())
            mode.calls = None
        notices = tuple(notice.message for notice in trainer.take_notices())
    return Recorded(tuple(parts), notices, tuple(calls))


def _trainer(plan: Plan, workload: Workload, meter: Meter, mode: DatalessMode) -> Trainer:
    return Trainer(plan, workload, meter=meter, dataless_device=mode.device)


def recorded_by_blocks(
    plan: Plan, workload: Workload, steps: Sequence[Window], mode: DatalessMode
) -> Recorded:
    """Return what `recorded` does, from a trace of some of the blocks where that is enough."""
    if plan.model == "custom":  # what its forward does between blocks may differ from one to the next
        return recorded(plan, workload, steps, mode)
    with plain_torch(), mode.device:
        model = prepare_model(workload, plan)
    blocks = block_list(workload, model)
    period = max(1, plan.checkpoint_every)
    if blocks is not None:
        rest = len(blocks) % period
        depths = (rest + PERIODS * period, rest + (PERIODS + 1) * period)
        if sum(depths) < len(blocks):
            try:
                return deepened(plan, workload, steps, mode, model, blocks, depths)
            except Irregular:
                pass
    return recorded(plan, giving(workload, lambda: model), steps, mode)


def deepened(
    plan: Plan,
    workload: Workload,
    steps: Sequence[Window],
    mode: DatalessMode,
    model: nn.Module,
    blocks: nn.ModuleList,
    depths: tuple[int, int],
) -> Recorded:
    """Trace `model` with as many of its `blocks` as `depths` say, and return what all of them give.

    Raises Irregular where the two traces do not tell.
    """
    period = depths[1] - depths[0]
    block_names = _block_names(model, blocks)
    cuts = [
        recorded(
            plan,
            giving(workload, lambda depth=depth: cut(model, blocks, depth)),
            steps,
            mode,
            with_calls=True,
        )
        for depth in depths
    ]
    if cuts[0].notices != cuts[1].notices:
        raise Irregular("the notices depend on the number of blocks")
    numbers: dict[Any, int] = {}
    shallow, deep = (
        stream_of(each.parts, each.calls, Names.of(_seen(each), block_names[:depth], period), numbers)
        for each, depth in zip(cuts, depths, strict=True)
    )
    more = (len(blocks) - depths[1]) // period
    names = (*_names(model), *_met_on_the_way(cuts[1], _names(model), block_names[depths[1] :]))
    whole = Names.of(names, block_names, period)
    return Recorded(tuple(_deeper(shallow, deep, more, whole, names)), cuts[0].notices)


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


def _seen(cut_: Recorded) -> tuple[str, ...]:
    """Return the names of the modules that ran: those of the model, then others that were met on the way."""
    return cut_.parts[-1].module_names


def _met_on_the_way(deep: Recorded, whole: Sequence[str], missing: Sequence[str]) -> tuple[str, ...]:
    """Return what a trace saw beside the modules of the cut model."""
    prefixes = tuple(f"{name}." for name in missing)
    of_the_model = [name for name in whole if not f"{name}.".startswith(prefixes)]
    return _seen(deep)[len(of_the_model) :]


def _names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of all modules, as a meter lists them."""
    return ("", *(name or type(module).__name__ for name, module in model.named_modules()))


def _block_names(model: nn.Module, blocks: nn.ModuleList) -> list[str]:
    names = {module: name for name, module in model.named_modules()}
    return [names[block] for block in blocks]
