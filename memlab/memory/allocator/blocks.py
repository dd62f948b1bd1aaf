"""Blocks, the segments that they tile, and the pools that keep the free ones in order."""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from operator import attrgetter

from memlab.memory.allocator.rules import LARGE_SEGMENT_BYTES, SMALL_SEGMENT_BYTES

ALLOCATED, FREE, UNMAPPED = "allocated", "free", "unmapped"


class Block:
    """A stretch of a segment, linked to its neighbours there."""

    __slots__ = (
        "address",
        "after",
        "allocation",
        "before",
        "requested",
        "searches_before",
        "segment",
        "size",
        "state",
    )

    def __init__(self, segment: "Segment", address: int, size: int, state: str) -> None:
        self.segment = segment
        self.address = address
        self.size = size
        self.state = state
        self.before: Block | None = None
        self.after: Block | None = None
        self.allocation: Hashable = None
        self.requested = 0
        self.searches_before = 0
        """Searches that its pool had seen when the block became free: its age is counted from there."""

    @property
    def is_split(self) -> bool:
        """Say whether the block shares its segment with others."""
        return self.before is not None or self.after is not None

    def cut(self, size: int, state: str) -> "Block":
        """Keep the first `size` bytes; return the rest as a new block behind them, in no pool."""
        rest = Block(self.segment, self.address + size, self.size - size, state)
        rest.before, rest.after = self, self.after
        if self.after is not None:
            self.after.before = rest
        self.after, self.size = rest, size
        return rest

    def absorb_next(self) -> None:
        """Take the block behind into this one; neither is in a pool."""
        gone = self.after
        assert gone is not None
        self.size += gone.size
        self.after = gone.after
        if gone.after is not None:
            gone.after.before = self


class Segment:
    """Memory from one call to the driver, or one expandable stretch of addresses."""

    __slots__ = ("first", "is_expandable", "pool", "size")

    def __init__(self, pool: "Pool", address: int, size: int, *, is_expandable: bool) -> None:
        self.pool = pool
        self.size = size
        self.is_expandable = is_expandable
        self.first = Block(self, address, size, UNMAPPED if is_expandable else FREE)

    def __iter__(self) -> Iterator[Block]:
        block: Block | None = self.first
        while block is not None:
            yield block
            block = block.after


_address = attrgetter("address")


class Pool:
    """The free blocks of one pool by size, then address: the first that is large enough fits best."""

    def __init__(self, *, is_small: bool) -> None:
        self.is_small = is_small
        self.page_bytes = SMALL_SEGMENT_BYTES if is_small else LARGE_SEGMENT_BYTES
        self.free: dict[int, Block] = {}
        """Free blocks by address."""
        self.unmapped: list[Block] = []
        """Stretches of expandable segments without memory behind them, by address."""
        self.inactive_split = 0
        """Bytes of free blocks that share a segment with others; expandable ones left out, as torch does."""
        self.searches = 0
        self._order: list[tuple[int, int]] = []

    def add(self, block: Block) -> None:
        """Take `block` in as free, once it is linked to its neighbours."""
        block.state = FREE
        block.searches_before = self.searches
        self.free[block.address] = block
        insort(self._order, (block.size, block.address))
        if block.is_split and not block.segment.is_expandable:
            self.inactive_split += block.size

    def add_joined(self, block: Block) -> Block:
        """Merge `block` with its free neighbours, take the result in, and return it."""
        before, after = block.before, block.after
        if after is not None and after.state is FREE:
            self.remove(after)
            block.absorb_next()
        if before is not None and before.state is FREE:
            self.remove(before)
            before.absorb_next()
            block = before
        self.add(block)
        return block

    def remove(self, block: Block) -> None:
        """Take `block` out, before its size or its neighbours change."""
        del self.free[block.address]
        del self._order[bisect_left(self._order, (block.size, block.address))]
        if block.is_split and not block.segment.is_expandable:
            self.inactive_split -= block.size

    def from_size(self, size: int) -> Iterator[Block]:
        """Yield the free blocks of at least `size` bytes, best fit first; the pool must stay as it is."""
        for index in range(bisect_left(self._order, (size,)), len(self._order)):
            yield self.free[self._order[index][1]]

    def largest_first(self) -> list[Block]:
        """Return the free blocks, the largest first."""
        return [self.free[address] for _, address in reversed(self._order)]

    def add_unmapped(self, block: Block) -> None:
        """Take `block` in as address space without memory."""
        block.state = UNMAPPED
        insort(self.unmapped, block, key=_address)

    def remove_unmapped(self, block: Block) -> None:
        """Take `block` out of the address space without memory."""
        self.unmapped.remove(block)
