"""Changes of a trace go in; states, peaks and maps come out."""

import numpy as np
import pytest

from memlab.memory.allocator import Allocator, AllocatorError, replay_events
from memlab.trace import ARRAYS, CATEGORIES, Trace
from memlab.units import MiB

DELTAS = [30 * MiB, 1000, -30 * MiB, 40 * MiB, -40 * MiB, -1000]
NUMBERS = [0, 1, 0, 2, 2, 1]


def test_a_replay_says_what_is_held_after_each_change() -> None:
    replay = replay_events(DELTAS, NUMBERS)

    assert replay.allocated.tolist() == [30 * MiB, 30 * MiB + 1024, 1024, 40 * MiB + 1024, 1024, 0]
    assert replay.reserved.tolist() == [size * MiB for size in (30, 32, 32, 72, 72, 72)]
    assert (replay.peak_requested, replay.peak_allocated) == (40 * MiB + 1000, 40 * MiB + 1024)
    assert (replay.peak_reserved, replay.peak_event) == (72 * MiB, 3)
    assert (replay.unallocated_at_peak, replay.unallocated_at_end) == (32 * MiB - 1024, 72 * MiB)
    assert replay.fits and replay.retries == 0


def test_the_arrays_of_a_trace_can_be_replayed() -> None:
    columns = {"delta_bytes": DELTAS, "allocation": NUMBERS}
    arrays = (np.asarray(columns.get(name, np.zeros(6)), kind) for name, kind in ARRAYS.items())
    trace = Trace((0,) * len(CATEGORIES), *arrays)

    replay = replay_events(trace.delta_bytes, trace.allocation)

    assert replay.peak_requested == trace.peak.total
    assert np.all(replay.allocated >= trace.totals)


def test_what_was_alive_before_is_placed_first_in_its_order() -> None:
    replay = replay_events([-2 * MiB, 3 * MiB], [8, 10], held=[(9, 5 * MiB), (8, 2 * MiB)])

    assert (replay.start_allocated, replay.start_reserved) == (7 * MiB, 20 * MiB)
    assert replay.peak_event == -1, "nothing was reserved after the start"
    assert [block.allocation for block in replay.segments()[0].blocks] == [9, 8, None]
    assert [block.allocation for block in replay.segments(1)[0].blocks] == [9, 10, None]


def test_the_map_is_that_of_the_peak_or_of_any_change() -> None:
    replay = replay_events(DELTAS, NUMBERS)

    for event in range(-1, len(replay)):
        segments = replay.segments(event)
        held = (replay.allocated[event], replay.reserved[event]) if event >= 0 else (0, 0)
        assert (sum(part.allocated for part in segments), sum(part.size for part in segments)) == held
    assert replay.segments() == replay.segments(3)


def test_a_replay_ends_where_memory_runs_out() -> None:
    replay = replay_events(DELTAS, NUMBERS, limit_bytes=34 * MiB)

    assert (len(replay), replay.fits, replay.retries) == (3, False, 1)
    assert replay.reserved.tolist() == [30 * MiB, 32 * MiB, 32 * MiB]
    assert replay.out_of_memory is not None
    assert replay.out_of_memory.allocation == 2
    assert replay.out_of_memory.free_bytes == 32 * MiB


def test_nothing_to_replay_is_an_empty_replay() -> None:
    replay = replay_events([], [])

    assert (len(replay), replay.peak_reserved, replay.peak_event, replay.segments()) == (0, 0, -1, ())
    assert (replay.unallocated_at_peak, replay.unallocated_at_end) == (0, 0)


def test_changes_of_zero_bytes_do_nothing() -> None:
    replay = replay_events([512, 0, 0, -512], [0, 1, 1, 0])

    assert replay.allocated.tolist() == [512, 512, 512, 0]


def test_the_settings_are_those_of_the_allocator() -> None:
    replay = replay_events([30 * MiB], [0], expandable_segments=True, roundup_power2_divisions=2)

    assert (replay.peak_allocated, replay.peak_reserved) == (32 * MiB, 40 * MiB)
    assert replay.settings == Allocator(expandable_segments=True, roundup_power2_divisions=2).settings


@pytest.mark.parametrize(
    ("deltas", "numbers", "options", "message"),
    [
        (
            [1],
            [1, 2],
            {},
            "delta_bytes has shape (1,) and allocation (2,); give one number to each change.",
        ),
        (
            [512, 99],
            [0, -1],
            {},
            "change 1 has no allocation (-1): the trace leaves steps out there; replay each part of it, or record "
            "all steps.",
        ),
        (
            [512, -512],
            [0, 5],
            {},
            "change 1: allocation 5 cannot be freed: it was never made, or is free already.",
        ),
        (
            [512, -500],
            [0, 0],
            {},
            "change 1: allocation 0 holds 512 bytes and cannot release 500; a resized storage is a release and a "
            "new allocation.",
        ),
        (
            [],
            [],
            {"held": [(0, 3 * MiB)], "limit_bytes": 10 * MiB},
            "limit_bytes=10485760 is below what is held before the first change (3.0 MiB, rounded up to segments); "
            "raise the limit or hold less.",
        ),
    ],
)
def test_a_trace_that_cannot_be_says_where(deltas: list, numbers: list, options: dict, message: str) -> None:
    with pytest.raises(AllocatorError) as caught:
        replay_events(deltas, numbers, **options)

    assert str(caught.value) == message


def test_an_event_that_was_not_made_has_no_map() -> None:
    replay = replay_events(DELTAS, NUMBERS)

    with pytest.raises(
        AllocatorError, match=r"^event=6 must lie between -1 and 5, the last that was made\.$"
    ):
        replay.segments(6)
