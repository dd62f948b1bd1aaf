"""Replay the changes of a trace through the allocator model."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memlab.memory.allocator.cache import Allocator
from memlab.memory.allocator.report import CardFull, MappedSegment, Shortfall
from memlab.memory.allocator.rules import AllocatorError, Settings
from memlab.units import format_bytes

Held = tuple[tuple[Hashable, int], ...]


@dataclass(frozen=True, eq=False)
class Replay:
    """What a sequence of changes made the allocator hold. Where it ran out of memory, it ends there."""

    settings: Settings
    allocated: NDArray[np.int64]
    """Rounded bytes in use after each change; shape (n,), or fewer where memory ran out."""
    reserved: NDArray[np.int64]
    """Bytes held of the card after each change; the same shape."""
    inactive_split: NDArray[np.int64]
    """Free bytes in segments in use after each change; the same shape."""
    start_allocated: int
    """Rounded bytes in use before the first change."""
    start_reserved: int
    peak_allocated: int
    peak_requested: int
    peak_reserved: int
    retries: int
    """Times that the cache was given back because the card was full."""
    out_of_memory: Shortfall | None
    """The request that did not fit, which is change number `len(replay)`; None if all did."""
    held: Held
    """What was alive before the first change: names and bytes, in order of placement."""
    delta_bytes: NDArray[np.int64]
    allocation: NDArray[np.int64]

    def __len__(self) -> int:
        """Changes that were made."""
        return len(self.reserved)

    @property
    def fits(self) -> bool:
        """Say whether every request was served."""
        return self.out_of_memory is None

    @cached_property
    def peak_event(self) -> int:
        """The change after which most was reserved, the first such; -1 is the state before all changes."""
        if not len(self) or self.reserved.max() <= self.start_reserved:
            return -1
        return int(np.argmax(self.reserved))

    @property
    def unallocated_at_peak(self) -> int:
        """Reserved but not allocated bytes at `peak_event`."""
        return self._unallocated(self.peak_event)

    @property
    def unallocated_at_end(self) -> int:
        """Reserved but not allocated bytes after the last change."""
        return self._unallocated(len(self) - 1)

    def segments(self, event: int | None = None) -> tuple[MappedSegment, ...]:
        """Return the segment map after change number `event`, by default `peak_event`; replays up to there.

        -1 is the state before the first change.
        """
        event = self.peak_event if event is None else event
        if not -1 <= event < len(self):
            raise AllocatorError(
                f"event={event} must lie between -1 and {len(self) - 1}, the last that was made."
            )
        allocator = _holding(self.held, self.settings)
        changes = zip(
            self.delta_bytes[: event + 1].tolist(), self.allocation[: event + 1].tolist(), strict=True
        )
        for delta, allocation in changes:
            _change(allocator, delta, allocation)
        return allocator.segments()

    def _unallocated(self, event: int) -> int:
        if event < 0:
            return self.start_reserved - self.start_allocated
        return int(self.reserved[event] - self.allocated[event])


def replay_events(
    delta_bytes: ArrayLike,
    allocation: ArrayLike,
    *,
    held: Iterable[tuple[Hashable, int]] = (),
    limit_bytes: int | None = None,
    **settings: Any,
) -> Replay:
    """Replay changes as a Trace records them: bytes (negative for a release) and number of the allocation.

    `held` is alive before them: numbers and bytes, in order of placement. A change of 0 bytes does
    nothing. Changes numbered -1, with which `Trace.join` bridges left-out steps, are refused. The
    settings are those of `Allocator`.
    """
    deltas, numbers = _checked(delta_bytes, allocation)
    start = tuple((name, int(size)) for name, size in held)
    chosen = Settings(limit_bytes=limit_bytes, **settings)
    allocator = _holding(start, chosen)
    start_allocated, start_reserved = allocator.allocated, allocator.reserved
    states = np.zeros((len(deltas), 3), np.int64)
    done, shortfall = _run(allocator, deltas.tolist(), numbers.tolist(), states)
    return Replay(
        settings=chosen,
        allocated=states[:done, 0],
        reserved=states[:done, 1],
        inactive_split=states[:done, 2],
        start_allocated=start_allocated,
        start_reserved=start_reserved,
        peak_allocated=allocator.peak_allocated,
        peak_requested=allocator.peak_requested,
        peak_reserved=allocator.peak_reserved,
        retries=allocator.retries,
        out_of_memory=shortfall,
        held=start,
        delta_bytes=deltas,
        allocation=numbers,
    )


def _checked(delta_bytes: ArrayLike, allocation: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    deltas, numbers = np.asarray(delta_bytes, np.int64), np.asarray(allocation, np.int64)
    if deltas.ndim != 1 or deltas.shape != numbers.shape:
        raise AllocatorError(
            f"delta_bytes has shape {deltas.shape} and allocation {numbers.shape}; give one number to each change."
        )
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        raise AllocatorError(
            f"change {unknown[0]} has no allocation ({numbers[unknown[0]]}): the trace leaves steps out there; "
            "replay each part of it, or record all steps."
        )
    return deltas, numbers


def _holding(held: Held, settings: Settings) -> Allocator:
    """Return an allocator in which `held` is placed."""
    allocator = Allocator(**vars(settings))
    try:
        for name, size in held:
            allocator.malloc(name, size)
    except CardFull:
        total = sum(size for _, size in held)
        raise AllocatorError(
            f"limit_bytes={settings.limit_bytes} is below what is held before the first change "
            f"({format_bytes(total)}, rounded up to segments); raise the limit or hold less."
        ) from None
    return allocator


def _run(
    allocator: Allocator, deltas: list[int], numbers: list[int], states: NDArray[np.int64]
) -> tuple[int, Shortfall | None]:
    """Make the changes and note the state after each; return how many were made, and what did not fit."""
    noted = []
    shortfall = None
    try:
        for delta, number in zip(deltas, numbers, strict=True):
            _change(allocator, delta, number)
            noted.append((allocator.allocated, allocator.reserved, allocator.inactive_split))
    except CardFull as full:
        shortfall = full.shortfall
    except AllocatorError as error:
        raise AllocatorError(f"change {len(noted)}: {error}") from None
    if noted:
        states[: len(noted)] = noted
    return len(noted), shortfall


def _change(allocator: Allocator, delta: int, number: int) -> None:
    if delta > 0:
        allocator.malloc(number, delta)
    elif delta < 0:
        freed = allocator.free(number)
        if freed != -delta:
            raise AllocatorError(
                f"allocation {number} holds {freed} bytes and cannot release {-delta}; "
                "a resized storage is a release and a new allocation."
            )
