"""Whatever is allocated and freed, under whatever settings: no byte is lost, none is counted twice."""

import pytest
from allocator_laws import PlainModel, Step, steps, walk
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab.memory.allocator import Allocator, CardFull
from memlab.units import MiB

SETTINGS = [
    {},
    {"limit_bytes": 130 * MiB},
    {"roundup_power2_divisions": 4},
    {"limit_bytes": 130 * MiB, "max_split_size_bytes": 21 * MiB},
    {"limit_bytes": 130 * MiB, "garbage_collection_threshold": 0.5},
    {"expandable_segments": True},
    {"limit_bytes": 130 * MiB, "expandable_segments": True},
    {"limit_bytes": 130 * MiB, "expandable_segments": True, "garbage_collection_threshold": 0.5},
]
quick = settings(max_examples=50, deadline=None)


@pytest.mark.parametrize("options", SETTINGS, ids=lambda options: ",".join(options) or "default")
@quick
@given(program=steps)
def test_every_byte_is_accounted_for_and_all_goes_back_in_the_end(options: dict, program: list[Step]) -> None:
    allocator = Allocator(**options)

    alive = walk(allocator, program)
    for number in alive:
        allocator.free(number)

    assert (allocator.allocated, allocator.requested, allocator.inactive_split) == (0, 0, 0)
    allocator.release_cache()
    assert allocator.reserved == 0
    assert allocator.segments() == ()


@quick
@given(program=steps, limit=st.none() | st.integers(0, 200).map(lambda size: size * MiB))
def test_the_default_rules_are_those_of_the_plain_model(program: list[Step], limit: int | None) -> None:
    allocator, plain = Allocator(limit), PlainModel(limit)
    alive = []
    for number, step in enumerate(program):
        if step.size:
            fitted = plain.malloc(number, step.size)
            if fitted:
                allocator.malloc(number, step.size)
                alive.append(number)
            else:
                with pytest.raises(CardFull):
                    allocator.malloc(number, step.size)
        elif alive:
            number = alive.pop(step.which % len(alive))
            allocator.free(number)
            plain.free(number)
        assert (allocator.allocated, allocator.reserved, allocator.retries) == (
            plain.allocated,
            plain.reserved,
            plain.retries,
        )


@quick
@given(program=steps, expandable=st.booleans())
def test_the_same_program_gives_the_same_map(program: list[Step], expandable: bool) -> None:
    first, second = (Allocator(expandable_segments=expandable) for _ in range(2))

    walk(first, program)
    walk(second, program)

    assert first.segments() == second.segments()


@quick
@given(program=steps, expandable=st.booleans())
def test_the_cache_is_given_back_only_at_the_limit(program: list[Step], expandable: bool) -> None:
    free = Allocator(expandable_segments=expandable)
    walk(free, program)

    limited = Allocator(free.peak_reserved, expandable_segments=expandable)
    walk(limited, program)

    assert (free.retries, limited.retries) == (0, 0)
    assert [part.blocks for part in limited.segments()] == [part.blocks for part in free.segments()]


@quick
@given(sizes=st.lists(st.integers(1, 60 * MiB), min_size=1, max_size=6), rounds=st.integers(1, 5))
def test_a_repeated_iteration_reserves_nothing_more(sizes: list[int], rounds: int) -> None:
    allocator = Allocator()
    reserved = []
    for _ in range(rounds):
        for number, size in enumerate(sizes):
            allocator.malloc(number, size)
        for number in range(len(sizes)):
            allocator.free(number)
        reserved.append(allocator.reserved)

    assert len(set(reserved)) == 1, reserved
