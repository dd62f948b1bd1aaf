"""What the allocator gives back to the card, and when."""

from memlab.memory.allocator.blocks import Block, Pool, Segment
from memlab.memory.allocator.driver import Driver
from memlab.memory.allocator.expandable import shrink
from memlab.memory.allocator.rules import Settings

Segments = dict[int, Segment]


def unused(pool: Pool, driver: Driver, segments: Segments) -> None:
    """Give back every segment of the pool that is wholly free, and every free page of expandable ones."""
    for block in list(pool.free.values()):
        if block.segment.is_expandable:
            shrink(pool, block, driver, segments)
        elif not block.is_split:
            _whole(pool, block, driver, segments)


def oversize(pool: Pool, driver: Driver, segments: Segments, wanted: int, max_split_size: int) -> bool:
    """Give back one free block of `wanted` bytes or more, else the largest that are never split.

    Say whether that gave back `wanted` bytes. Expandable segments stay: they shrink by pages.
    """
    fitting = next(pool.from_size(wanted), None)
    if fitting is not None and not fitting.segment.is_expandable:
        _whole(pool, fitting, driver, segments)
        return True
    given = 0
    for block in pool.largest_first():
        if given >= wanted or block.size < max_split_size:
            break
        if not block.segment.is_expandable:
            given += block.size
            _whole(pool, block, driver, segments)
    return given >= wanted


def aged(pool: Pool, driver: Driver, segments: Segments, settings: Settings) -> None:
    """Above the threshold, give back the unused segments that waited longest, until enough is free.

    Age is the number of searches in the pool since the block became free. Every block of at least
    the mean age goes, then every one of at least the mean of those left: torch's way to collect seldom.
    """
    assert settings.limit_bytes is not None and settings.garbage_collection_threshold is not None
    excess = driver.reserved - int(settings.garbage_collection_threshold * settings.limit_bytes)
    waiting = [b for b in pool.free.values() if not b.is_split and not b.segment.is_expandable]
    while excess > 0 and waiting:
        ages = [pool.searches - block.searches_before for block in waiting]
        mean = sum(ages) / len(ages)
        for block, age in zip(waiting, ages, strict=True):
            if age >= mean:
                excess -= block.size
                _whole(pool, block, driver, segments)
        waiting = [block for block, age in zip(waiting, ages, strict=True) if age < mean]


def _whole(pool: Pool, block: Block, driver: Driver, segments: Segments) -> None:
    """Give back the segment that `block` fills."""
    assert not block.is_split and not block.segment.is_expandable
    pool.remove(block)
    driver.give_back(block.size)
    del segments[block.address]
