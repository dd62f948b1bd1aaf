"""The memory of one optimizer step as a few hundred points, so that no peak is lost."""

import numpy as np
from numpy.typing import NDArray

from memlab.events import StepMemory
from memlab.trace import CATEGORIES, PHASES, Trace

LIMIT = 400
"""Points that a chart as wide as a notebook can show apart."""

Span = tuple[str, int, float, float]


def step_memory(trace: Trace, step: int, *, allocated: int, reserved: int, limit: int = LIMIT) -> StepMemory:
    """Return what a chart needs of one step's `trace`, in at most about `limit` points.

    Position 0 lies before the first change of memory, position i after change i.
    """
    levels = np.concatenate([[sum(trace.start)], trace.totals]).astype(np.int64)
    spans = phase_spans(trace)
    kept = kept_positions(levels, spans, limit)
    return StepMemory(
        step=step,
        position=tuple(kept.astype(float).tolist()),
        by_category=tuple(tuple(series) for series in sizes_at(trace, kept).T.tolist()),
        spans=tuple(spans),
        peak=trace.peak.to_dict(),
        peak_position=float(np.argmax(levels)),
        allocated=allocated,
        reserved=reserved,
    )


def phase_spans(trace: Trace) -> list[Span]:
    """Return (phase, micro_step, first position, last position) of each unbroken part of the step."""
    if not len(trace):
        return []
    changed = (np.diff(trace.phase) != 0) | (np.diff(trace.micro_step) != 0)
    edges = [0, *(np.flatnonzero(changed) + 1).tolist(), len(trace)]
    return [
        (PHASES[trace.phase[first]], int(trace.micro_step[first]), float(first), float(last))
        for first, last in zip(edges[:-1], edges[1:], strict=True)
    ]


def kept_positions(levels: NDArray[np.int64], spans: list[Span], limit: int) -> NDArray[np.int64]:
    """Return positions to draw: the ends, the edges of phases, and the highest in each of many buckets."""
    if len(levels) <= limit:
        return np.arange(len(levels))
    edges = np.array([0, len(levels) - 1, *(int(last) for *_, last in spans)])
    if len(edges) > limit // 2:  # hundreds of micro-steps: their peaks tell more than their edges
        edges = edges[:2]
    width = -(-len(levels) // (limit - len(edges)))
    buckets = -(-len(levels) // width)
    padded = np.full(buckets * width, -1, np.int64)
    padded[: len(levels)] = levels
    peaks = padded.reshape(buckets, width).argmax(axis=1) + np.arange(buckets) * width
    return np.unique(np.concatenate([edges, peaks]))


def sizes_at(trace: Trace, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return live bytes at sorted `positions`, by category; shape (positions, categories)."""
    width = len(CATEGORIES)
    following = np.searchsorted(positions, np.arange(1, len(trace) + 1))
    cells = following * width + trace.category
    # The sums are exact: bincount adds in float64, which holds whole numbers up to 8 PiB.
    sums = np.bincount(cells, trace.delta_bytes, (len(positions) + 1) * width)
    changes = sums.astype(np.int64).reshape(-1, width)[: len(positions)]
    return np.cumsum(changes, axis=0) + np.array(trace.start, np.int64)
