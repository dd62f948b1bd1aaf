"""What happens when the card is full: what is given back first, what counts as a retry, what is said."""

import pytest

from memlab.memory.allocator import Allocator, CardFull
from memlab.units import MiB


def freed(*sizes: int, **options) -> Allocator:
    """Return an allocator whose cache holds one segment for each of `sizes` (MiB)."""
    allocator = Allocator(**options)
    for number, size in enumerate(sizes):
        allocator.malloc(number, size * MiB)
    for number in range(len(sizes)):
        allocator.free(number)
    return allocator


def cached(allocator: Allocator) -> list[int]:
    """Return the sizes of the wholly free segments, in MiB."""
    return [segment.size // MiB for segment in allocator.segments() if not segment.allocated]


def test_at_the_limit_the_whole_cache_goes_back_and_the_request_is_tried_again() -> None:
    allocator = freed(30, 30, limit_bytes=90 * MiB)

    allocator.malloc("next", 40 * MiB)

    assert (allocator.reserved, allocator.peak_reserved, allocator.retries) == (40 * MiB, 60 * MiB, 1)


def test_a_request_that_fits_to_the_byte_gives_nothing_back() -> None:
    allocator = freed(30, 30, limit_bytes=100 * MiB)

    allocator.malloc("next", 40 * MiB)

    assert (allocator.reserved, allocator.retries) == (100 * MiB, 0)


def test_segments_in_use_stay_and_the_shortfall_says_why() -> None:
    allocator = Allocator(50 * MiB)
    allocator.malloc("held", 2 * MiB)  # in a segment of 20 MiB
    allocator.malloc("cached", 20 * MiB)
    allocator.free("cached")

    with pytest.raises(CardFull) as caught:
        allocator.malloc("next", 31 * MiB)

    shortfall = caught.value.shortfall
    assert (shortfall.requested_bytes, shortfall.asked_bytes) == (31 * MiB, 32 * MiB)
    assert (shortfall.free_bytes, shortfall.unallocated_bytes) == (30 * MiB, 18 * MiB)
    assert shortfall.largest_free_block_bytes == 18 * MiB
    assert str(caught.value) == (
        "Out of memory: allocation 'next' of 31.0 MiB asked the card for 32.0 MiB where 30.0 MiB of 50.0 MiB were "
        "free, 2.0 MiB allocated and 18.0 MiB reserved but unallocated."
    )
    assert (allocator.retries, allocator.reserved, allocator.allocated) == (1, 20 * MiB, 2 * MiB)


def test_after_running_out_the_allocator_goes_on() -> None:
    allocator = Allocator(20 * MiB)
    with pytest.raises(CardFull):
        allocator.malloc("too much", 21 * MiB)

    allocator.malloc("enough", 20 * MiB)

    assert allocator.allocated == 20 * MiB


def test_fragments_fail_a_request_that_the_free_bytes_would_hold() -> None:
    allocator = Allocator(40 * MiB)
    for number in range(4):
        allocator.malloc(number, 9 * MiB)  # two to a segment of 20 MiB
    allocator.free(0)
    allocator.free(2)

    with pytest.raises(CardFull) as caught:
        allocator.malloc("next", 12 * MiB)

    assert caught.value.shortfall.unallocated_bytes == 22 * MiB


def test_an_oversize_block_large_enough_goes_first_and_alone() -> None:
    allocator = freed(60, 30, limit_bytes=100 * MiB, max_split_size_bytes=20 * MiB)

    allocator.malloc("next", 40 * MiB)

    assert (cached(allocator), allocator.retries) == ([30], 0)


def test_else_the_largest_oversize_blocks_go_until_they_are_enough() -> None:
    allocator = freed(32, 28, 30, limit_bytes=100 * MiB, max_split_size_bytes=20 * MiB)

    allocator.malloc("next", 50 * MiB)

    assert (cached(allocator), allocator.retries) == ([28], 0)


def test_where_oversize_blocks_are_not_enough_the_whole_cache_goes() -> None:
    allocator = freed(30, 10, limit_bytes=70 * MiB, max_split_size_bytes=20 * MiB)

    allocator.malloc("next", 64 * MiB)

    assert (cached(allocator), allocator.retries) == ([], 1)


def test_above_the_threshold_the_oldest_segments_go_before_new_ones_come() -> None:
    allocator = freed(24, 24, limit_bytes=100 * MiB, garbage_collection_threshold=0.5)
    allocator.malloc("younger", 30 * MiB)
    allocator.free("younger")
    assert allocator.reserved == 78 * MiB, "48 MiB are below the threshold of 50"

    allocator.malloc("next", 40 * MiB)

    assert (cached(allocator), allocator.retries) == ([30], 0)


def test_below_the_threshold_nothing_is_collected() -> None:
    allocator = freed(24, 24, limit_bytes=200 * MiB, garbage_collection_threshold=0.5)

    allocator.malloc("next", 30 * MiB)

    assert cached(allocator) == [24, 24]


def test_collection_goes_on_until_the_excess_is_gone() -> None:
    allocator = Allocator(200 * MiB, garbage_collection_threshold=0.1)
    for size in (30, 32, 34):  # each freed before the next: the first is the oldest by one search each
        allocator.malloc(size, size * MiB)
    for size in (30, 32, 34):
        allocator.free(size)
        allocator.malloc("other pool", 512)
        allocator.free("other pool")

    allocator.malloc("next", 50 * MiB)

    assert cached(allocator) == [2], "the small pool is not collected"
