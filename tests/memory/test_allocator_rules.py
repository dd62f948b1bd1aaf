"""The rules of CUDACachingAllocator.cpp, one example each; sizes in MiB unless said."""

import pytest

from memlab.memory.allocator import Allocator, AllocatorError, round_size, segment_size
from memlab.units import KiB, MiB


def holding(*sizes: int, **options) -> Allocator:
    """Return an allocator that holds `sizes` (bytes), numbered from 0."""
    allocator = Allocator(**options)
    for number, size in enumerate(sizes):
        allocator.malloc(number, size)
    return allocator


def blocks(allocator: Allocator) -> list[list[tuple[int, object]]]:
    """Return the size and the holder of every block, segment by segment."""
    return [[(block.size, block.allocation) for block in segment.blocks] for segment in allocator.segments()]


@pytest.mark.parametrize(
    ("size", "reserved"),
    [
        (512, 2 * MiB),
        (MiB, 4 * MiB),
        (MiB + 512, 20 * MiB),
        (10 * MiB - 512, 40 * MiB),
        (10 * MiB + 512, 36 * MiB),
    ],
)
def test_three_live_tensors_reserve_what_torchs_own_test_says(size: int, reserved: int) -> None:
    assert holding(size, size, size).reserved == reserved


@pytest.mark.parametrize(
    ("size", "rounded"), [(1, 512), (512, 512), (513, 1024), (25 * MiB + 1, 25 * MiB + 512)]
)
def test_sizes_round_up_to_512_bytes(size: int, rounded: int) -> None:
    assert round_size(size) == rounded


def test_a_block_that_is_not_split_counts_whole() -> None:
    assert holding(25 * MiB + 1).allocated == 26 * MiB  # the segment: less than 1 MiB would remain


def test_an_empty_tensor_takes_no_block() -> None:
    allocator = holding(0)

    assert (allocator.reserved, allocator.free(0)) == (0, 0)


@pytest.mark.parametrize(
    ("size", "divisions", "rounded"),
    [
        (1200 * KiB, 4, 1280 * KiB),  # torch's own example: between 1024 and 2048 lie 1280, 1536 and 1792
        (84 * MiB, 4, 96 * MiB),
        (84 * MiB, 8, 88 * MiB),
        (84 * MiB, 1, 84 * MiB),
        (65 * MiB, 2, 96 * MiB),
        (127 * MiB, 2, 128 * MiB),
        (64 * MiB, 16, 64 * MiB),
        (1200, 4, 1536),  # too small for steps of 512 bytes or more: the usual rounding
        (2049, 4, 2560),
    ],
)
def test_power_of_two_divisions_round_to_steps_between_powers(
    size: int, divisions: int, rounded: int
) -> None:
    assert round_size(size, divisions) == rounded


@pytest.mark.parametrize(
    ("rounded", "segment"),
    [
        (512, 2),
        (MiB, 2),
        (MiB + 512, 20),
        (10 * MiB - 512, 20),
        (10 * MiB, 10),
        (10 * MiB + 512, 12),
        (33 * MiB, 34),
    ],
)
def test_segments_come_in_three_kinds(rounded: int, segment: int) -> None:
    assert segment_size(rounded) == segment * MiB


def test_the_small_pool_splits_when_512_bytes_remain() -> None:
    assert blocks(holding(MiB, MiB - 512)) == [[(MiB, 0), (MiB - 512, 1), (512, None)]]


@pytest.mark.parametrize(("size", "kept"), [(19 * MiB, True), (19 * MiB - 512, False)])
def test_the_large_pool_splits_when_more_than_1_mib_remains(size: int, kept: bool) -> None:
    allocator = holding(20 * MiB)
    allocator.free(0)

    allocator.malloc("next", size)

    whole, split = [[(20 * MiB, "next")]], [[(size, "next"), (20 * MiB - size, None)]]
    assert blocks(allocator) == (whole if kept else split)
    assert allocator.allocated == (20 * MiB if kept else size)


def test_the_pools_do_not_share() -> None:
    allocator = holding(20 * MiB)
    allocator.free(0)

    allocator.malloc("small", 512)

    assert [segment.pool for segment in allocator.segments()] == ["large", "small"]


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = holding(60 * MiB, 40 * MiB, 50 * MiB)
    for number in range(3):
        allocator.free(number)

    allocator.malloc("next", 39 * MiB)

    assert blocks(allocator)[1] == [(40 * MiB, "next")]


def test_of_equal_blocks_the_oldest_segments_and_the_lowest_is_taken() -> None:
    allocator = holding(30 * MiB, 30 * MiB)
    allocator.free(1)
    allocator.free(0)

    allocator.malloc("next", 30 * MiB)

    assert blocks(allocator) == [[(30 * MiB, "next")], [(30 * MiB, None)]]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)])
def test_free_neighbours_merge_in_any_order(order: tuple[int, ...]) -> None:
    allocator = holding(5 * MiB, 6 * MiB, 7 * MiB)

    for number in order:
        allocator.free(number)

    assert blocks(allocator) == [[(20 * MiB, None)]]


def test_blocks_of_two_segments_do_not_merge() -> None:
    allocator = holding(20 * MiB, 20 * MiB)
    allocator.free(0)
    allocator.free(1)

    allocator.malloc("next", 40 * MiB)

    assert allocator.reserved == 80 * MiB


def test_a_freed_block_counts_as_inactive_only_while_its_segment_is_in_use() -> None:
    allocator = holding(5 * MiB, 5 * MiB)
    assert allocator.inactive_split == 10 * MiB

    allocator.free(0)
    assert allocator.inactive_split == 15 * MiB

    allocator.free(1)
    assert allocator.inactive_split == 0


def test_a_block_from_the_split_size_on_is_not_split() -> None:
    allocator = holding(40 * MiB, max_split_size_bytes=30 * MiB)
    allocator.free(0)

    allocator.malloc("small", 20 * MiB)  # must not break the large block
    allocator.malloc("large", 31 * MiB)  # may take it whole

    assert blocks(allocator) == [[(40 * MiB, "large")], [(20 * MiB, "small")]]


def test_an_oversize_block_serves_only_requests_within_20_mib_of_it() -> None:
    allocator = holding(60 * MiB, max_split_size_bytes=30 * MiB)
    allocator.free(0)

    allocator.malloc("too small", 40 * MiB)
    assert allocator.reserved == 100 * MiB

    allocator.malloc("near enough", 40 * MiB + 512)
    assert allocator.reserved == 100 * MiB


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit_bytes": -1}, "limit_bytes=-1 must be 0 or more, or None for no limit."),
        (
            {"roundup_power2_divisions": 3},
            "roundup_power2_divisions=3 must be a power of 2, or 0 to round to 512 bytes only.",
        ),
        (
            {"max_split_size_bytes": MiB},
            "max_split_size_bytes=1048576 must be at least 20971520 (20 MiB), as torch asks, or None to split "
            "every block.",
        ),
        (
            {"limit_bytes": 1, "garbage_collection_threshold": 1.0},
            "garbage_collection_threshold=1.0 must lie between 0 and 1, or be None to collect at the limit only.",
        ),
        (
            {"garbage_collection_threshold": 0.5},
            "garbage_collection_threshold=0.5 is a share of limit_bytes, which is None; give a limit or drop the "
            "threshold.",
        ),
    ],
)
def test_impossible_settings_say_what_would_be_right(options: dict, message: str) -> None:
    with pytest.raises(AllocatorError) as caught:
        Allocator(**options)

    assert str(caught.value) == message


def test_impossible_requests_say_what_is_wrong() -> None:
    allocator = holding(512)
    allocator.free(0)

    with pytest.raises(AllocatorError, match=r"^allocation 1 asks for -5 bytes, which must be 0 or more\.$"):
        allocator.malloc(1, -5)
    for number in (0, 7):  # freed before, and never made
        with pytest.raises(AllocatorError) as caught:
            allocator.free(number)
        assert (
            str(caught.value)
            == f"allocation {number} cannot be freed: it was never made, or is free already."
        )
    allocator.malloc(2, 512)
    with pytest.raises(
        AllocatorError, match=r"^allocation 2 is alive already; free it first or name it anew\.$"
    ):
        allocator.malloc(2, 512)
