"""Expandable segments: addresses for more than the card, memory mapped page by page behind them."""

from memlab.memory.allocator.blocks import FREE, UNMAPPED, Block, Pool, Segment
from memlab.memory.allocator.driver import Driver

UNLIMITED_BYTES = 1 << 60
"""Addresses of a segment on a card without a limit: enough that none is ever filled."""


def grow(pool: Pool, size: int, driver: Driver, segments: dict[int, Segment]) -> Block | None:
    """Map pages until a free block of `size` bytes is there; return it, out of the pool.

    None where the card has too few pages left. What was mapped until then stays, as in torch.
    """
    block = _lowest_room(pool, size)
    if block is None:
        block = _new_segment(pool, driver, segments)
    if block.state is UNMAPPED:
        mapped = _map(pool, block, min(block.size, size), driver)
        if mapped is None:
            return None
        block = mapped
    while block.size < size:
        behind = block.after
        assert behind is not None and behind.state is UNMAPPED
        mapped = _map(pool, behind, min(size - block.size, behind.size), driver)
        if mapped is None:
            return None
        block = mapped
    pool.remove(block)
    return block


def shrink(pool: Pool, block: Block, driver: Driver, segments: dict[int, Segment]) -> None:
    """Unmap the whole pages of a free block; forget its segment where nothing else is in it."""
    start = block.segment.first.address
    first = -(-(block.address - start) // pool.page_bytes) * pool.page_bytes + start
    last = (block.address + block.size - start) // pool.page_bytes * pool.page_bytes + start
    if first >= last:
        return
    pool.remove(block)
    hole = block
    if first > block.address:
        hole = block.cut(first - block.address, UNMAPPED)
        pool.add(block)
    if hole.address + hole.size > last:
        pool.add(hole.cut(last - hole.address, FREE))
    driver.give_back(hole.size)
    pool.add_unmapped(hole)
    hole = _merge_unmapped(pool, hole)
    if not hole.is_split:
        pool.remove_unmapped(hole)
        del segments[hole.address]


def reach(block: Block) -> int:
    """Return the size that `block` can grow to by mapping what lies behind it."""
    behind = block.after
    return block.size + (behind.size if behind is not None and behind.state is UNMAPPED else 0)


def _lowest_room(pool: Pool, size: int) -> Block | None:
    """Return the lowest block from which on free and unmapped blocks hold `size` bytes."""
    for block in pool.unmapped:
        if block.before is not None and block.before.state is FREE:
            block = block.before
        if _room_from(block, size):
            return block
    return None


def _room_from(block: Block | None, size: int) -> bool:
    while size > 0 and block is not None and block.state in (FREE, UNMAPPED):
        size -= block.size
        block = block.after
    return size <= 0


def _new_segment(pool: Pool, driver: Driver, segments: dict[int, Segment]) -> Block:
    """Reserve addresses for 9/8 of the card: room to fill a hole's place at the end instead."""
    limit = driver.limit_bytes
    wanted = UNLIMITED_BYTES if limit is None else limit + limit // 8
    size = max(1, -(-wanted // pool.page_bytes)) * pool.page_bytes
    address = driver.addresses(size)
    segment = segments[address] = Segment(pool, address, size, is_expandable=True)
    pool.add_unmapped(segment.first)
    return segment.first


def _map(pool: Pool, block: Block, size: int, driver: Driver) -> Block | None:
    """Put pages behind the first `size` bytes of an unmapped block; return the free block they end in."""
    mapped_bytes = -(-size // pool.page_bytes) * pool.page_bytes
    if not driver.take(mapped_bytes):
        return None
    pool.remove_unmapped(block)
    if mapped_bytes < block.size:
        pool.add_unmapped(block.cut(mapped_bytes, UNMAPPED))
    return pool.add_joined(block)


def _merge_unmapped(pool: Pool, block: Block) -> Block:
    """Merge `block` with its unmapped neighbours; return the result, in the pool."""
    before, after = block.before, block.after
    if after is not None and after.state is UNMAPPED:
        pool.remove_unmapped(after)
        block.absorb_next()
    if before is not None and before.state is UNMAPPED:
        pool.remove_unmapped(block)
        before.absorb_next()
        block = before
    return block
