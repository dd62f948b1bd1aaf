"""A Trace keeps every change of live memory; what it says of an instant follows from the changes alone."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab.trace import ARRAYS, CATEGORIES, PHASES, Breakdown, Trace

START = tuple(range(100, 100 + len(CATEGORIES)))
NAMES = ("", "blocks.0", "head")


def trace_of(changes: list[tuple[int, str, str, int]], start: tuple[int, ...] = START) -> Trace:
    """Return a trace of (bytes, category, phase, step); the micro-step is that of the position."""
    columns: dict[str, list[int]] = {
        "delta_bytes": [change[0] for change in changes],
        "allocation": list(range(len(changes))),
        "category": [CATEGORIES.index(change[1]) for change in changes],
        "phase": [PHASES.index(change[2]) for change in changes],
        "micro_step": [index % 2 for index in range(len(changes))],
        "step": [change[3] for change in changes],
        "module": [index % len(NAMES) for index in range(len(changes))],
    }
    return Trace(start, *(np.array(columns[name], kind) for name, kind in ARRAYS.items()), NAMES)


CHANGES = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40), st.sampled_from(CATEGORIES), st.sampled_from(PHASES), st.integers(0, 3)
    ).map(tuple),
    max_size=30,
).map(lambda changes: sorted(changes, key=lambda change: change[3]))


@settings(deadline=None)
@given(CHANGES)
def test_categories_sum_to_the_total_at_every_change(changes: list[Any]) -> None:
    trace = trace_of(changes)

    for index in range(len(trace)):
        assert trace.at(index).total == trace.totals[index] == trace.by_category[index].sum()
        assert trace.at(index).sizes == tuple(trace.by_category[index])
    assert sum(trace.end) == sum(START) + sum(change[0] for change in changes)


@settings(deadline=None)
@given(CHANGES)
def test_the_peak_is_the_first_of_the_largest_totals_or_the_start(changes: list[Any]) -> None:
    trace = trace_of(changes)
    totals = [sum(START), *trace.totals.tolist()]

    first = totals.index(max(totals))

    assert trace.peak == (trace.at(first - 1) if first else Breakdown(START))


@settings(deadline=None)
@given(CHANGES)
def test_the_steps_joined_are_the_trace(changes: list[Any]) -> None:
    trace = trace_of(changes)

    steps = trace.steps()

    assert list(steps) == sorted({change[3] for change in changes})
    assert len(trace) == 0 or Trace.join(list(steps.values())) == trace


@settings(deadline=None)
@given(CHANGES)
def test_json_gives_the_same_trace_back(changes: list[Any]) -> None:
    trace = trace_of(changes)

    assert Trace.from_dict(json.loads(json.dumps(trace.to_dict()))) == trace


def test_the_largest_instant_of_each_phase_that_was_seen() -> None:
    trace = trace_of(
        [
            (50, "activations", "forward", 0),
            (-20, "activations", "backward", 0),
            (5, "gradients", "backward", 0),
        ],
        start=(0,) * len(CATEGORIES),
    )

    peaks = trace.peaks_by_phase()

    assert {phase: peak.total for phase, peak in peaks.items()} == {"forward": 50, "backward": 35}
    assert peaks["backward"]["gradients"] == 5


def test_a_trace_without_changes_has_its_start_as_peak_and_end() -> None:
    trace = trace_of([])

    assert (trace.peak, trace.end, trace.steps()) == (Breakdown(START), START, {})


def test_no_parts_join_to_an_empty_trace() -> None:
    assert Trace.join([]).peak.total == 0


def test_the_last_change_can_be_named_from_the_end() -> None:
    trace = trace_of([(1, "inputs", "forward", 0), (2, "inputs", "backward", 0)])

    assert trace.at(-1) == trace.at(1)


def test_a_breakdown_is_asked_for_a_category_as_it_is_written_or_spoken() -> None:
    peak = Breakdown(START, "optimizer", 1, 2, "head")

    assert peak["optimizer_state"] == peak["optimizer state"] == START[CATEGORIES.index("optimizer_state")]
    assert peak["low-precision copies"] == START[CATEGORIES.index("low_precision_copies")]
    assert list(peak) == list(CATEGORIES) and sum(peak.values()) == peak.total
    with pytest.raises(KeyError):
        peak["cache"]


def test_json_gives_the_same_breakdown_back() -> None:
    peak = Breakdown(START, "backward", 1, 2, "blocks.0")

    assert Breakdown.from_dict(json.loads(json.dumps(peak.to_dict()))) == peak
