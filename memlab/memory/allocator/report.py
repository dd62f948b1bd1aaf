"""What the allocator model tells: a map of its segments, and why a request did not fit."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from memlab.units import format_bytes


@dataclass(frozen=True)
class MappedBlock:
    """One block of a segment."""

    offset: int
    """Bytes from the segment's start."""
    size: int
    """Rounded bytes."""
    state: Literal["allocated", "free"]
    allocation: Hashable | None = None
    """Who holds it; None where free."""
    requested: int = 0
    """Bytes that were asked for; the rest of an allocated block is rounding."""


@dataclass(frozen=True)
class MappedSegment:
    """A contiguous stretch of the card's memory that the allocator holds; its blocks tile it."""

    address: int
    """Place in the model's address space: segments that came later lie higher."""
    size: int
    pool: Literal["small", "large"]
    expandable: bool
    blocks: tuple[MappedBlock, ...]

    @property
    def allocated(self) -> int:
        """Rounded bytes in use."""
        return sum(block.size for block in self.blocks if block.state == "allocated")


@dataclass(frozen=True)
class Shortfall:
    """The request at which the card was full, after all that could be given back was given back."""

    allocation: Hashable
    requested_bytes: int
    asked_bytes: int
    """The segment for it: the size in torch's message. Expandable ones need whole pages, less a free end."""
    allocated_bytes: int
    reserved_bytes: int
    limit_bytes: int
    largest_free_block_bytes: int
    """Largest cached block of the pool that the request belongs to; too small, or not to be split."""

    @property
    def free_bytes(self) -> int:
        """What the card still had to give."""
        return self.limit_bytes - self.reserved_bytes

    @property
    def unallocated_bytes(self) -> int:
        """Reserved by the allocator, in no use, and impossible to give back: fragments."""
        return self.reserved_bytes - self.allocated_bytes

    def __str__(self) -> str:
        return (
            f"allocation {self.allocation!r} of {format_bytes(self.requested_bytes)} asked the card for "
            f"{format_bytes(self.asked_bytes)} where {format_bytes(self.free_bytes)} of "
            f"{format_bytes(self.limit_bytes)} were free, {format_bytes(self.allocated_bytes)} allocated and "
            f"{format_bytes(self.unallocated_bytes)} reserved but unallocated"
        )


class CardFull(MemoryError):
    """A request did not fit below the limit; `shortfall` says by how much."""

    def __init__(self, shortfall: Shortfall) -> None:
        super().__init__(f"Out of memory: {shortfall}.")
        self.shortfall = shortfall
