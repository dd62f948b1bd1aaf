"""A thinned step keeps every peak, and its sums are exact."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab.engine.thin import step_memory
from memlab.trace import ARRAYS, CATEGORIES, Trace


def trace_of(changes: int, seed: int, micro_steps: int) -> Trace:
    """Return a trace of random changes, `micro_steps` forwards and backwards and an optimizer step."""
    random = np.random.default_rng(seed)
    parts = np.sort(random.integers(0, 2 * micro_steps + 1, changes))
    is_optimizer = parts == 2 * micro_steps
    arrays = {
        "delta_bytes": random.integers(-1000, 1001, changes),
        "allocation": np.arange(changes),
        "category": random.integers(0, len(CATEGORIES), changes),
        "phase": np.where(is_optimizer, 3, 1 + parts % 2),
        "micro_step": np.where(is_optimizer, micro_steps - 1, parts // 2),
        "step": np.zeros(changes),
        "module": np.zeros(changes),
    }
    start = tuple(random.integers(10**6, 10**7, len(CATEGORIES)).tolist())
    return Trace(start, *(arrays[name].astype(kind) for name, kind in ARRAYS.items()))


traces = st.builds(
    trace_of, changes=st.integers(0, 3000), seed=st.integers(0, 2**32 - 1), micro_steps=st.integers(1, 300)
)


@settings(max_examples=60, deadline=None)
@given(trace=traces, limit=st.integers(20, 500))
def test_thinning_keeps_the_peak_and_exact_bytes(trace: Trace, limit: int) -> None:
    memory = step_memory(trace, 7, allocated=1, reserved=2, limit=limit)

    levels = np.array([sum(trace.start), *trace.totals])
    positions = np.array(memory.position, int)
    totals = np.sum(memory.by_category, axis=0)
    assert len(positions) <= limit + 1
    assert (positions[0], positions[-1]) == (0, len(trace))
    assert np.array_equal(totals, levels[positions])
    assert totals[memory.position.index(memory.peak_position)] == levels.max() == memory.peak["total"]
    expected = [trace.start if index == 0 else tuple(trace.by_category[index - 1]) for index in positions]
    assert np.array_equal(np.array(memory.by_category).T, expected)


@settings(max_examples=30, deadline=None)
@given(trace=traces)
def test_every_stretch_of_a_step_keeps_its_highest_point(trace: Trace) -> None:
    memory = step_memory(trace, 0, allocated=0, reserved=0, limit=200)

    levels = np.array([sum(trace.start), *trace.totals])
    totals = np.interp(np.arange(len(levels)), memory.position, np.sum(memory.by_category, axis=0))
    width = -(-2 * len(levels) // 100)  # two buckets of the coarsest thinning at this limit
    for first in range(0, len(levels), width):
        stretch = slice(first, first + width)
        assert totals[max(0, first - width) : first + 2 * width].max() >= levels[stretch].max()


def test_spans_follow_one_another_and_their_edges_are_drawn() -> None:
    trace = trace_of(20_000, seed=1, micro_steps=8)

    memory = step_memory(trace, 0, allocated=0, reserved=0)

    names = [span[:2] for span in memory.spans]
    assert names == [(phase, k) for k in range(8) for phase in ("forward", "backward")] + [("optimizer", 7)]
    assert all(before[3] == after[2] for before, after in zip(memory.spans, memory.spans[1:], strict=False))
    assert {edge for span in memory.spans for edge in span[2:]} <= set(memory.position)


def test_a_step_without_changes_is_one_point() -> None:
    memory = step_memory(trace_of(0, 0, 1), 0, allocated=0, reserved=0)

    assert (memory.position, memory.spans, memory.peak_position) == ((0.0,), (), 0.0)
