"""Expandable segments: pages on demand, one stretch of addresses, and what that saves; sizes in MiB."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab.memory.allocator import Allocator, CardFull
from memlab.units import MiB


def iterate(allocator: Allocator, sizes: list[int]) -> None:
    """Allocate `sizes` (bytes), then free them all."""
    for number, size in enumerate(sizes):
        allocator.malloc(number, size)
    for number in range(len(sizes)):
        allocator.free(number)


def shape(allocator: Allocator) -> list[tuple[str, list[int | None]]]:
    """Return the pool of each mapped stretch and its blocks' sizes, free ones as negative numbers, in MiB."""
    return [
        (part.pool, [block.size // MiB * (1 if block.state == "allocated" else -1) for block in part.blocks])
        for part in allocator.segments()
    ]


@pytest.mark.parametrize(
    ("sizes", "reserved"),
    [((1,), 2), ((2,), 20), ((21,), 40), ((11, 11), 40), ((19, 19, 19), 60), ((1, 1, 1), 4)],
)
def test_memory_comes_in_pages_of_2_and_20_mib(sizes: tuple[int, ...], reserved: int) -> None:
    allocator = Allocator(expandable_segments=True)

    for number, size in enumerate(sizes):
        allocator.malloc(number, size * MiB)

    assert allocator.reserved == reserved * MiB


def test_a_free_end_grows_instead_of_a_new_segment() -> None:
    allocator = Allocator(expandable_segments=True)
    iterate(allocator, [30 * MiB])

    allocator.malloc("larger", 50 * MiB)

    assert shape(allocator) == [("large", [50, -10])]


def test_a_hole_is_taken_before_the_end_grows() -> None:
    allocator = Allocator(expandable_segments=True)
    for number, size in enumerate((30, 10, 5)):
        allocator.malloc(number, size * MiB)
    allocator.free(0)

    allocator.malloc("in the hole", 15 * MiB)

    assert shape(allocator) == [("large", [15, -15, 10, 5, -15])]


def test_every_remainder_of_512_bytes_is_split_off() -> None:
    allocator = Allocator(expandable_segments=True)
    allocator.malloc("most", 20 * MiB - 512)

    assert [block.size for block in allocator.segments()[0].blocks] == [20 * MiB - 512, 512]


def test_the_cache_gives_back_whole_pages_only() -> None:
    allocator = Allocator(expandable_segments=True)
    for number, size in enumerate((15, 50, 15)):  # pages end at 20, 40, 60 and 80
        allocator.malloc(number, size * MiB)
    allocator.free(1)

    allocator.release_cache()

    assert shape(allocator) == [("large", [15, -5]), ("large", [-5, 15])]
    assert allocator.reserved == 40 * MiB


def test_unmapped_pages_are_filled_first() -> None:
    allocator = Allocator(expandable_segments=True)
    for number, size in enumerate((15, 50, 15)):
        allocator.malloc(number, size * MiB)
    allocator.free(1)
    allocator.release_cache()

    allocator.malloc("back again", 50 * MiB)

    assert shape(allocator) == [("large", [15, 50, 15])]
    assert allocator.reserved == 80 * MiB


def test_at_the_limit_free_pages_move_to_where_they_are_needed() -> None:
    allocator = Allocator(100 * MiB, expandable_segments=True)
    for number, size in enumerate((40, 20, 40)):
        allocator.malloc(number, size * MiB)
    allocator.free(0)
    allocator.free(2)

    allocator.malloc("next", 60 * MiB)  # two holes of 40: no segment could serve it

    assert (allocator.reserved, allocator.retries) == (80 * MiB, 1)
    assert [part.allocated // MiB for part in allocator.segments()] == [80]


def test_too_few_pages_left_is_out_of_memory() -> None:
    allocator = Allocator(59 * MiB, expandable_segments=True)
    allocator.malloc("first", 40 * MiB)

    with pytest.raises(CardFull):
        allocator.malloc("second", 2 * MiB)

    assert (allocator.reserved, allocator.retries) == (40 * MiB, 1)


sizes_of_one_iteration = st.lists(st.integers(2, 90), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None)
@given(first=sizes_of_one_iteration, growth=st.lists(st.integers(0, 9), max_size=4))
def test_growing_iterations_reserve_their_largest_rounded_to_pages(
    first: list[int], growth: list[int]
) -> None:
    allocator, default = Allocator(expandable_segments=True), Allocator()
    sizes = [size * MiB for size in first]
    for step in [0, *growth]:
        sizes = [size + step * MiB // 3 // 512 * 512 for size in sizes]
        iterate(allocator, sizes)
        iterate(default, sizes)

    page = 20 * MiB
    assert allocator.reserved == -(-sum(sizes) // page) * page
    assert allocator.reserved < default.reserved + page, "never more than a page above segments"


def test_a_batch_that_grows_by_one_costs_segments_twice_and_pages_once() -> None:
    allocator, default = Allocator(expandable_segments=True), Allocator()
    for batch in (7, 8, 9, 10):
        for which in (allocator, default):
            iterate(which, [batch * layer * 5 * MiB for layer in (1, 2, 3, 2, 1)])

    assert allocator.reserved == 460 * MiB
    assert default.reserved > 1.5 * allocator.reserved, f"{default.reserved:,}"
