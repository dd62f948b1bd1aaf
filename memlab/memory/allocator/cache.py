"""The caching allocator itself: serve from the cache, else from the driver, else give back and try again."""

from collections.abc import Hashable

from memlab.memory.allocator import release
from memlab.memory.allocator.blocks import ALLOCATED, FREE, UNMAPPED, Block, Pool, Segment
from memlab.memory.allocator.driver import Driver
from memlab.memory.allocator.expandable import grow, reach
from memlab.memory.allocator.report import CardFull, MappedBlock, MappedSegment, Shortfall
from memlab.memory.allocator.rules import (
    BLOCK_BYTES,
    LARGE_SEGMENT_BYTES,
    SMALL_REQUEST_BYTES,
    AllocatorError,
    Settings,
    round_size,
    segment_size,
)


class Allocator:
    """Places allocations as torch's CUDACachingAllocator does on one stream. See docs/allocator.md.

    Counters are bytes: `allocated` (rounded), `requested`, their peaks, and `reserved` of the card.
    """

    def __init__(
        self,
        limit_bytes: int | None = None,
        *,
        expandable_segments: bool = False,
        roundup_power2_divisions: int = 0,
        max_split_size_bytes: int | None = None,
        garbage_collection_threshold: float | None = None,
    ) -> None:
        self.settings = Settings(
            limit_bytes=limit_bytes,
            expandable_segments=expandable_segments,
            roundup_power2_divisions=roundup_power2_divisions,
            max_split_size_bytes=max_split_size_bytes,
            garbage_collection_threshold=garbage_collection_threshold,
        )
        self.allocated = self.peak_allocated = 0
        self.requested = self.peak_requested = 0
        self.retries = 0
        """Times that the cache was given back because the card was full (torch: num_alloc_retries)."""
        self._small, self._large = Pool(is_small=True), Pool(is_small=False)
        self._driver = Driver(limit_bytes)
        self._segments: dict[int, Segment] = {}
        self._live: dict[Hashable, Block | None] = {}

    @property
    def reserved(self) -> int:
        """Bytes that the allocator holds of the card."""
        return self._driver.reserved

    @property
    def peak_reserved(self) -> int:
        """The most that it ever held, also for an instant within one request."""
        return self._driver.peak_reserved

    @property
    def inactive_split(self) -> int:
        """Free bytes in segments that are in use: they cannot go back to the card (expandable ones can)."""
        return self._small.inactive_split + self._large.inactive_split

    def malloc(self, allocation: Hashable, size: int) -> None:
        """Place `size` bytes under the name `allocation`; raise CardFull where they do not fit."""
        if size < 0:
            raise AllocatorError(f"allocation {allocation!r} asks for {size} bytes, which must be 0 or more.")
        if allocation in self._live:
            raise AllocatorError(
                f"allocation {allocation!r} is alive already; free it first or name it anew."
            )
        if size == 0:  # torch does not ask its allocator either
            self._live[allocation] = None
            return
        rounded = round_size(size, self.settings.roundup_power2_divisions)
        pool = self._small if rounded <= SMALL_REQUEST_BYTES else self._large
        block = self._from_cache(pool, rounded) or self._from_card(pool, rounded)
        if block is None:
            raise CardFull(self._shortfall(allocation, size, rounded, pool))
        if self._splits(pool, rounded, block.size - rounded):
            pool.add(block.cut(rounded, FREE))
        block.state, block.allocation, block.requested = ALLOCATED, allocation, size
        self._live[allocation] = block
        self._count(block.size, size)

    def free(self, allocation: Hashable) -> int:
        """Give the block of `allocation` back to the cache; return the bytes that were asked for."""
        try:
            block = self._live.pop(allocation)
        except KeyError:
            raise AllocatorError(
                f"allocation {allocation!r} cannot be freed: it was never made, or is free already."
            ) from None
        if block is None:
            return 0
        requested = block.requested
        self._count(-block.size, -requested)
        block.allocation, block.requested = None, 0
        block.segment.pool.add_joined(block)
        return requested

    def release_cache(self) -> None:
        """Give the card what is unused (torch.cuda.empty_cache): whole segments, or whole pages."""
        for pool in (self._large, self._small):
            release.unused(pool, self._driver, self._segments)

    def segments(self) -> tuple[MappedSegment, ...]:
        """Return the map of what is reserved, by address."""
        return tuple(part for _, segment in sorted(self._segments.items()) for part in _mapped_parts(segment))

    def _count(self, size: int, requested: int) -> None:
        self.allocated += size
        self.requested += requested
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        if self.requested > self.peak_requested:
            self.peak_requested = self.requested

    def _from_cache(self, pool: Pool, rounded: int) -> Block | None:
        """Take the free block that fits best out of the pool."""
        if self.settings.garbage_collection_threshold is not None:
            pool.searches += 1
        fitting = pool.from_size(rounded)
        block = next(fitting, None)
        if block is None:
            return None
        if self.settings.expandable_segments:
            # A block at the growing end counts with what it can grow to: leave it if the next is smaller.
            for other in fitting:
                if reach(other) >= reach(block):
                    break
                block = other
        split = self.settings.max_split_size_bytes
        if split is not None and block.size >= (split if rounded < split else rounded + LARGE_SEGMENT_BYTES):
            return None
        pool.remove(block)
        return block

    def _from_card(self, pool: Pool, rounded: int) -> Block | None:
        """Get new memory; where the card is full, give back first: oversize blocks, then all unused."""
        settings = self.settings
        if settings.garbage_collection_threshold is not None:
            release.aged(self._large, self._driver, self._segments, settings)
        block = self._reserve(pool, rounded)
        if block is None and settings.max_split_size_bytes is not None:
            wanted = max(rounded, settings.max_split_size_bytes)
            if release.oversize(pool, self._driver, self._segments, wanted, settings.max_split_size_bytes):
                block = self._reserve(pool, rounded)
        if block is None:
            self.release_cache()
            self.retries += 1
            block = self._reserve(pool, rounded)
        return block

    def _reserve(self, pool: Pool, rounded: int) -> Block | None:
        """Return a new free block, in no pool; None where the card is full."""
        size = segment_size(rounded)
        if self.settings.expandable_segments:
            # torch collects only under a memory fraction, which counts a whole segment, not the pages needed.
            if self.settings.garbage_collection_threshold is not None and not self._driver.has(size):
                return None
            return grow(pool, rounded, self._driver, self._segments)
        if not self._driver.take(size):
            return None
        address = self._driver.addresses(size)
        segment = self._segments[address] = Segment(pool, address, size, is_expandable=False)
        return segment.first

    def _splits(self, pool: Pool, rounded: int, rest: int) -> bool:
        """Say whether `rest` bytes behind the request become a block of their own."""
        if pool.is_small or self.settings.expandable_segments:
            return rest >= BLOCK_BYTES
        split = self.settings.max_split_size_bytes
        return rest > SMALL_REQUEST_BYTES and (split is None or rounded < split)

    def _shortfall(self, allocation: Hashable, size: int, rounded: int, pool: Pool) -> Shortfall:
        limit = self.settings.limit_bytes
        assert limit is not None
        largest = max((block.size for block in pool.free.values()), default=0)
        return Shortfall(
            allocation, size, segment_size(rounded), self.allocated, self.reserved, limit, largest
        )


def _mapped_parts(segment: Segment) -> list[MappedSegment]:
    """Return the stretches of a segment that have memory behind them: one, unless it is expandable."""
    parts: list[list[Block]] = [[]]
    for block in segment:
        if block.state is UNMAPPED:
            parts.append([])
        else:
            parts[-1].append(block)
    return [_mapped(segment, blocks) for blocks in parts if blocks]


def _mapped(segment: Segment, blocks: list[Block]) -> MappedSegment:
    start = blocks[0].address
    mapped = tuple(
        MappedBlock(block.address - start, block.size, block.state, block.allocation, block.requested)  # type: ignore[arg-type]
        for block in blocks
    )
    size = sum(block.size for block in blocks)
    kind = "small" if segment.pool.is_small else "large"
    return MappedSegment(start, size, kind, segment.is_expandable, mapped)
