"""What a meter saw: every change of live memory, and the bytes by category at any of them."""

import base64
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

CATEGORIES = (
    "parameters",
    "buffers",
    "gradients",
    "optimizer_state",
    "activations",
    "low_precision_copies",
    "inputs",
    "communication_buffers",
    "temporaries",
)
"""They partition every live byte. Activations: made in forward (or recomputed) and alive when
backward reaches them. Low-precision copies: autocast's casts of parameters."""

PHASES = ("setup", "forward", "backward", "optimizer")
"""Parts of a run; "optimizer" is everything from the last backward to the end of the step."""


@dataclass(frozen=True)
class Breakdown(Mapping[str, int]):
    """Live bytes by category at one instant; they sum to `total` exactly."""

    sizes: tuple[int, ...] = (0,) * len(CATEGORIES)
    """Requested bytes, in the order of CATEGORIES."""
    phase: str = "setup"
    micro_step: int = 0
    """Micro-batch of the window, from 0."""
    step: int = 0
    """Optimizer step, from 0."""
    where: str = ""
    """Module that ran, where known."""

    @property
    def total(self) -> int:
        """All live bytes."""
        return sum(self.sizes)

    def __getitem__(self, category: str) -> int:
        # Said as it is written ("optimizer_state") or as it is spoken ("optimizer state").
        return self.sizes[_INDEX[category.replace(" ", "_").replace("-", "_")]]

    def __iter__(self) -> Iterator[str]:
        return iter(CATEGORIES)

    def __len__(self) -> int:
        return len(CATEGORIES)

    def to_dict(self) -> dict[str, Any]:
        """Return the bytes by category, the total and the place, ready for JSON."""
        place = {"phase": self.phase, "micro_step": self.micro_step, "step": self.step, "where": self.where}
        return {**self, "total": self.total, **place}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            tuple(values[name] for name in CATEGORIES),
            values["phase"],
            values["micro_step"],
            values["step"],
            values["where"],
        )


_INDEX = {name: index for index, name in enumerate(CATEGORIES)}


@dataclass(frozen=True, eq=False)
class Trace:
    """Every change of live memory, in order, as arrays of one length: n changes.

    A change is an allocation (positive bytes) or its release (negative), each of one storage.
    """

    start: tuple[int, ...]
    """Live bytes by category before the first change."""
    delta_bytes: NDArray[np.int64]
    allocation: NDArray[np.int32]
    """Number of the storage; a release carries that of its allocation."""
    category: NDArray[np.uint8]
    """Index into CATEGORIES; a storage keeps one category for life."""
    phase: NDArray[np.uint8]
    """Index into PHASES."""
    micro_step: NDArray[np.int32]
    step: NDArray[np.int32]
    module: NDArray[np.int32]
    """Index into `module_names`; 0 is unknown."""
    module_names: tuple[str, ...] = ("",)
    held: tuple[tuple[int, int], ...] = ()
    """Number and bytes of each storage alive before the first change, in order of placement."""

    def __len__(self) -> int:
        return len(self.delta_bytes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        mine, theirs = ((it.start, it.module_names, it.held) for it in (self, other))
        return mine == theirs and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ARRAYS
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def totals(self) -> NDArray[np.int64]:
        """Live bytes after each change; shape (n,)."""
        return sum(self.start) + np.cumsum(self.delta_bytes)

    @cached_property
    def by_category(self) -> NDArray[np.int64]:
        """Live bytes after each change, by category; shape (n, categories)."""
        changes = np.zeros((len(self), len(CATEGORIES)), np.int64)
        changes[np.arange(len(self)), self.category] = self.delta_bytes
        return np.cumsum(changes, axis=0) + np.array(self.start, np.int64)

    @property
    def peak(self) -> Breakdown:
        """The instant of the largest total; the first, where several tie."""
        if not len(self):
            return Breakdown(self.start)
        index = int(np.argmax(self.totals))
        return self.at(index) if self.totals[index] > sum(self.start) else Breakdown(self.start)

    @property
    def end(self) -> tuple[int, ...]:
        """Live bytes by category after the last change."""
        if not len(self):
            return self.start
        sums = np.bincount(self.category, self.delta_bytes, len(CATEGORIES)).astype(np.int64)
        return tuple(int(a + b) for a, b in zip(self.start, sums, strict=True))

    def at(self, index: int) -> Breakdown:
        """Return the bytes by category after change number `index`."""
        if index < 0:
            index += len(self)
        sums = np.bincount(self.category[: index + 1], self.delta_bytes[: index + 1], len(CATEGORIES))
        return Breakdown(
            tuple(int(a + b) for a, b in zip(self.start, sums.astype(np.int64), strict=True)),
            PHASES[self.phase[index]],
            int(self.micro_step[index]),
            int(self.step[index]),
            self.module_names[self.module[index]],
        )

    def peaks_by_phase(self) -> dict[str, Breakdown]:
        """Return the largest instant of each phase that the trace saw: which of the peaks wins."""
        peaks = {}
        for number, phase in enumerate(PHASES):
            inside = np.flatnonzero(self.phase == number)
            if len(inside):
                peaks[phase] = self.at(int(inside[np.argmax(self.totals[inside])]))
        return peaks

    def steps(self) -> dict[int, "Trace"]:
        """Return one trace for each optimizer step, by its number."""
        numbers = np.unique(self.step)
        return {int(number): self._slice(*self._span(number)) for number in numbers}

    def _span(self, step: int) -> tuple[int, int]:
        inside = np.flatnonzero(self.step == step)
        return int(inside[0]), int(inside[-1]) + 1

    def _slice(self, first: int, last: int) -> "Trace":
        start = self.at(first - 1).sizes if first else self.start
        arrays = (getattr(self, name)[first:last] for name in ARRAYS)
        return Trace(start, *arrays, self.module_names, self._held_before(first))

    def _held_before(self, change: int) -> tuple[tuple[int, int], ...]:
        held = dict(self.held)
        numbers, deltas = self.allocation[:change].tolist(), self.delta_bytes[:change].tolist()
        for number, delta in zip(numbers, deltas, strict=True):
            if delta > 0:
                held[number] = delta
            else:
                held.pop(number, None)
        return tuple(held.items())

    @classmethod
    def join(cls, parts: list["Trace"]) -> "Trace":
        """Return the traces in `parts` as one.

        Where steps between two of them are left out, changes of allocation -1 make up for what
        happened there, one a category.
        """
        if not parts:
            return cls((0,) * len(CATEGORIES), *(np.zeros(0, kind) for kind in ARRAYS.values()))
        joined = parts[:1]
        for before, part in zip(parts, parts[1:]):  # noqa: B905
            joined += [_bridge(before, part), part]
        arrays = (np.concatenate([getattr(part, name) for part in joined]) for name in ARRAYS)
        names = max((part.module_names for part in parts), key=len)
        return cls(parts[0].start, *arrays, names, parts[0].held)

    def to_dict(self) -> dict[str, Any]:
        """Return the trace for JSON; each array as base64 of its zlib-packed little-endian bytes."""
        arrays = {name: _pack(getattr(self, name)) for name in ARRAYS}
        held = [list(pair) for pair in self.held]
        return {"start": list(self.start), "module_names": list(self.module_names), "held": held, **arrays}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        arrays = (_unpack(values[name], kind) for name, kind in ARRAYS.items())
        held = tuple((number, size) for number, size in values.get("held", ()))
        return cls(tuple(values["start"]), *arrays, tuple(values["module_names"]), held)


ARRAYS: dict[str, np.dtype] = {
    "delta_bytes": np.dtype("<i8"),
    "allocation": np.dtype("<i4"),
    "category": np.dtype("u1"),
    "phase": np.dtype("u1"),
    "micro_step": np.dtype("<i4"),
    "step": np.dtype("<i4"),
    "module": np.dtype("<i4"),
}
assert tuple(ARRAYS) == tuple(field.name for field in fields(Trace))[1:-2]


def _bridge(before: Trace, after: Trace) -> Trace:
    """Return the changes that lead from the end of one trace to the start of another."""
    difference = np.array(after.start, np.int64) - np.array(before.end, np.int64)
    category = np.flatnonzero(difference)
    columns = {
        "delta_bytes": difference[category],
        "allocation": np.full(len(category), -1),
        "category": category,
        "step": np.full(len(category), after.step[0] if len(after) else 0),
    }
    arrays = (columns.get(name, np.zeros(len(category))).astype(kind) for name, kind in ARRAYS.items())
    return Trace(before.end, *arrays)


def _pack(array: NDArray) -> str:
    return base64.b64encode(zlib.compress(array.tobytes())).decode("ascii")


def _unpack(text: str, kind: np.dtype) -> NDArray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), kind)
