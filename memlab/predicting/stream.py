"""What a trial recorded as one stream of events, ready to be compared with that of a deeper model.

The stream begins with what lives before the first step: its births in the order of their numbers, then
references to them in the order of placement. Then come the changes of each step, and wherever another operator
was called between two of them, a mark that names it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.predicting.repeats import Irregular, Layout, Numbers
from memlab.trace import ARRAYS, CATEGORIES, Trace

BIRTH, DEATH, PLACED, CALL = range(4)
Calls = Sequence[tuple[int, Any]]
"""Operators of one step, each with the number of changes before it."""
_COPIES = CATEGORIES.index("low_precision_copies")
_COMMUNICATION = CATEGORIES.index("communication_buffers")
_COPIED = ("category", "phase", "micro_step", "step")


@dataclass(frozen=True)
class Names:
    """Names of modules as places: for each kind of module, one place a block."""

    kinds: tuple[str, ...]
    layout: Layout
    places: Numbers
    """Place of each name, by its index."""

    @classmethod
    def of(cls, names: Sequence[str], blocks: Sequence[str], period: int) -> "Names":
        """Sort `names` of modules; `blocks` are those of the blocks, in their order."""
        numbers = {block: number for number, block in enumerate(blocks)}
        sorted_names = [_kind_of(name, numbers) for name in names]
        kinds = tuple(dict.fromkeys(kind for kind, _ in sorted_names))
        repeated = {kind for kind, block in sorted_names if block is not None}
        units = [-(-len(blocks) // period) if kind in repeated else 0 for kind in kinds]
        layout = Layout(np.array([period if count else 1 for count in units]), np.array(units))
        starts = dict(zip(kinds, layout.starts(0).tolist(), strict=True))
        return cls(kinds, layout, np.array([starts[kind] + (block or 0) for kind, block in sorted_names]))


def _kind_of(name: str, blocks: dict[str, int]) -> tuple[str, int | None]:
    """Return what a module's name has in common with those of other blocks, and the number of its block."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        block = blocks.get(".".join(parts[:length]))
        if block is not None:
            return f"{'.'.join(parts[length:])} of a block", block
    return name, None


@dataclass(frozen=True)
class Stream:
    """Events as arrays of one length."""

    columns: NDArray[np.int64]
    """What an event has in common with those of other blocks; shape (events, columns)."""
    refers_to: Numbers
    """Place of the birth that a death or a placement refers to; -1 for others."""
    module: Numbers
    """Place of the module's name; -1 for others than changes."""
    start: Numbers
    names: Names


KIND, SIZE, PART, CATEGORY, PHASE, MICRO_STEP, STEP, MODULE, MAKER = range(9)


def stream_of(
    parts: Sequence[Trace], calls: Sequence[Calls], names: Names, numbers: dict[Any, int]
) -> Stream:
    """Return the stream of a trial's steps; `numbers` numbers operators and kinds of modules.

    Raises Irregular where storages are not numbered by birth.
    """
    held = parts[0].held
    rows = [_held_rows(held, parts[0].start[_COMMUNICATION])]
    refers = [np.full(len(held), -1), np.array([number for number, _ in held], np.int64)]
    modules = [np.full(2 * len(held), -1)]
    born_at = list(range(len(held)))
    makers = [-1] * len(held)
    length = 2 * len(held)
    for part, (trace, called) in enumerate(zip(parts, calls, strict=True)):
        columns, refer, module = _part_rows(part, trace, called, names, numbers, born_at, makers, length)
        rows.append(columns)
        refers.append(refer)
        modules.append(module)
        length += len(columns)
    start = np.array(parts[0].start, np.int64)
    return Stream(np.concatenate(rows), np.concatenate(refers), np.concatenate(modules), start, names)


def _held_rows(held: tuple[tuple[int, int], ...], exchanged_bytes: int) -> NDArray[np.int64]:
    """Return births, by number, and placements; those through which ranks exchange gradients differ in kind."""
    if sorted(number for number, _ in held) != list(range(len(held))):
        raise Irregular("what is held is not numbered by birth")
    rows = np.full((2 * len(held), MAKER + 1), -1, np.int64)
    rows[: len(held), KIND], rows[len(held) :, KIND] = BIRTH, PLACED
    rows[: len(held), SIZE] = [size for _, size in sorted(held)]
    rows[len(held) :, SIZE] = [size for _, size in held]
    first = len(held)  # a meter enters buffers of exchange last
    while exchanged_bytes > 0:
        first -= 1
        exchanged_bytes -= rows[first, SIZE]
    is_exchanged = np.array([*range(len(held)), *(number for number, _ in held)]) >= first
    rows[is_exchanged, CATEGORY] = _COMMUNICATION
    return rows


def _part_rows(
    part: int,
    trace: Trace,
    called: Calls,
    names: Names,
    numbers: dict[Any, int],
    born_at: list[int],
    makers: list[int],
    length: int,
) -> tuple[NDArray[np.int64], Numbers, Numbers]:
    """Return the rows of one step's changes and calls, and what they refer to."""
    before = np.array([place for place, _ in called], np.int64)
    operator = np.array([numbers.setdefault(func, len(numbers)) for _, func in called] + [-1], np.int64)
    call = np.searchsorted(before, np.arange(len(trace)), side="right") - 1
    marks = np.flatnonzero(np.diff(call, prepend=-1))
    order = np.argsort(np.concatenate([2 * np.arange(len(trace)) + 1, 2 * marks]), kind="stable")
    rows = np.full((len(order), MAKER + 1), -1, np.int64)
    rows[len(trace) :, KIND], rows[len(trace) :, MAKER] = CALL, operator[call[marks]]
    rows[:, PART] = part
    places = length + np.argsort(order)[: len(trace)]
    maker, refers = _made(trace, operator[call], places, born_at, makers)
    kinds = np.array([numbers.setdefault(kind, len(numbers)) for kind in names.kinds], np.int64)
    module = names.places[trace.module]
    columns = [
        np.where(trace.delta_bytes > 0, BIRTH, DEATH),
        np.abs(trace.delta_bytes),
        np.full(len(trace), part),
        *(getattr(trace, name) for name in _COPIED),
        kinds[np.searchsorted(names.layout.starts(0), module, side="right") - 1],
        maker,
    ]
    rows[: len(trace)] = np.stack(columns, axis=1)
    nothing = np.full(len(marks), -1)
    return rows[order], np.concatenate([refers, nothing])[order], np.concatenate([module, nothing])[order]


def _made(
    trace: Trace, operator: Numbers, places: Numbers, born_at: list[int], makers: list[int]
) -> tuple[Numbers, Numbers]:
    """Return the operator that made each change's storage, and for deaths the place of the birth."""
    births = trace.delta_bytes > 0
    born = trace.allocation[births]
    if not np.array_equal(born, np.arange(len(born_at), len(born_at) + len(born))):
        raise Irregular("storages are not numbered by birth")
    born_at += places[births].tolist()
    makers += operator[births].tolist()
    maker, birth = np.array(makers)[trace.allocation], np.array(born_at)[trace.allocation]
    return maker, np.where(births, -1, birth)


def signatures(shallow: Stream, deep: Stream) -> tuple[Numbers, Numbers]:
    """Number the events of two streams so that like ones have one number.

    A storage that is made once and holds something of each block grows with their number: clipping's norms.
    Its size is left out.
    """
    rows = np.concatenate([shallow.columns, deep.columns])
    unsized = np.delete(rows, SIZE, axis=1)
    kinds = np.unique(unsized, axis=0, return_inverse=True)[1].ravel()
    first, second = np.split(np.arange(len(rows)), [len(shallow.columns)])
    sized = np.unique(np.stack([kinds, rows[:, SIZE]], axis=1), axis=0, return_inverse=True)[1].ravel()
    grows = _grows(kinds[first], kinds[second], rows[first, SIZE], rows[second, SIZE])
    codes = np.where(np.isin(kinds, grows), -1 - kinds, sized)
    return codes[first], codes[second]


def _grows(shallow: Numbers, deep: Numbers, shallow_size: Numbers, deep_size: Numbers) -> Numbers:
    """Return the kinds of events that are as many in both streams, and larger in the deep one alone."""
    length = int(max(shallow.max(), deep.max())) + 1
    counts = [np.bincount(kinds, minlength=length) for kinds in (shallow, deep)]
    totals = [
        np.bincount(kinds, sizes, length) for kinds, sizes in ((shallow, shallow_size), (deep, deep_size))
    ]
    return np.flatnonzero((counts[0] == counts[1]) & (totals[0] != totals[1]))


def in_order(trace: Trace) -> Trace:
    """Return `trace` with casted weights that die together in the order of their birth.

    The CPU's autocast drops them in an order that depends on addresses.
    """
    dead = np.flatnonzero((trace.delta_bytes < 0) & (trace.category == _COPIES))
    group = np.cumsum(np.diff(dead, prepend=-1) != 1)
    order = dead[np.lexsort((trace.allocation[dead], group))]
    allocation, delta = trace.allocation.copy(), trace.delta_bytes.copy()
    allocation[dead], delta[dead] = trace.allocation[order], trace.delta_bytes[order]
    return replace(trace, allocation=allocation, delta_bytes=delta)


def traces(
    rows: NDArray[np.int64], refers: Numbers, module: Numbers, start: Numbers, names: Sequence[str]
) -> list[Trace]:
    """Return the steps of a stream as traces; `module` holds indices of `names`."""
    kind = rows[:, KIND]
    number = np.cumsum(kind == BIRTH) - 1
    number = np.where(refers >= 0, number[refers], number)
    placed = kind == PLACED
    held = tuple(zip(number[placed].tolist(), rows[placed, SIZE].tolist(), strict=True))
    found = []
    alive = tuple(start.tolist())
    for part in range(int(rows[:, PART].max()) + 1):
        of_part = (rows[:, PART] == part) & (kind != CALL)
        chosen = rows[of_part]
        size = np.where(chosen[:, KIND] == BIRTH, chosen[:, SIZE], -chosen[:, SIZE])
        columns = (
            size,
            number[of_part],
            *(chosen[:, at] for at in range(CATEGORY, STEP + 1)),
            module[of_part],
        )
        arrays = (column.astype(kind_) for column, kind_ in zip(columns, ARRAYS.values(), strict=True))
        found.append(Trace(alive, *arrays, tuple(names), held))
        alive = found[-1].end
    return found
