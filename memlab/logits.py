"""What a run's loss takes for itself: the logits, their copies in FP32, and their gradient."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memlab.run import Run
from memlab.trace import PHASES, Trace

PARTS = ("logits", "FP32 copies", "gradient")
"""As the head makes them; copied to FP32 and normalised there; and what backward makes of them."""
LOGITS, COPIES, GRADIENT = range(len(PARTS))
BACKWARD = PHASES.index("backward")


@dataclass(frozen=True)
class LogitsMemory:
    """Live bytes of the loss's own tensors, by part; they are within the run's activations and temporaries."""

    at_peak: Mapping[str, int]
    """At the instant of the run's largest total."""
    at_most: Mapping[str, int]
    """At the instant when they are largest together."""


def logits_memory(run: Run) -> LogitsMemory | None:
    """Return what cross entropy takes of `run`; None where the run has no trace, or a loss of its own kind."""
    trace = run.trace
    if trace is None or not (parts := dict(_parts(trace, run.plan.precision != "fp32"))):
        return None
    live = _live(trace, parts)
    return LogitsMemory(
        *(_named(live[index]) for index in (trace.totals.argmax(), live.sum(axis=1).argmax()))
    )


def _named(sizes: NDArray[np.int64]) -> dict[str, int]:
    return {name: int(size) for name, size in zip(PARTS, sizes, strict=True)}


def _live(trace: Trace, parts: Mapping[int, int]) -> NDArray[np.int64]:
    """Return the live bytes after each change; shape (changes, parts)."""
    changes = np.zeros((len(trace), len(PARTS)), np.int64)
    for part in range(len(PARTS)):
        own = np.isin(trace.allocation, [number for number, it in parts.items() if it == part])
        changes[own, part] = trace.delta_bytes[own]
    return changes.cumsum(axis=0)


def _parts(trace: Trace, low_precision: bool) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the loss's storages, each with its part.

    The modules of `memlab.cross_entropy` name theirs. Without chunks the model makes the logits and
    autograd the gradient, which no module names: they are the last births before the loss's own, and the
    first of their sizes in that micro-step's backward.
    """
    born = np.flatnonzero(trace.delta_bytes > 0)
    names = [trace.module_names[index] for index in trace.module[born]]
    sizes, numbers = trace.delta_bytes[born].tolist(), trace.allocation[born].tolist()
    phases = trace.phase[born].tolist()
    coming: list[int] = []  # sizes of the gradients that are still to be born
    for place, (name, size, phase) in enumerate(zip(names, sizes, phases, strict=True)):
        if name == "CrossEntropy" and names[place - 1] != name:
            is_cast = low_precision and sizes[place - 2] * 2 == size
            yield numbers[place], COPIES
            yield numbers[place - 1], COPIES if is_cast else LOGITS
            if is_cast:
                yield numbers[place - 2], LOGITS
            coming = [size, size, *([size // 2] if is_cast else [])]
        elif name == "Logits":
            yield numbers[place], COPIES if low_precision and names[place - 1] == name else LOGITS
        elif name in _CHUNKS:
            yield numbers[place], _CHUNKS[name]
        elif phase == BACKWARD and size in coming:
            coming.remove(size)
            yield numbers[place], GRADIENT


_CHUNKS = {"LogProbabilities": COPIES, "LogitsGradient": GRADIENT}
"""Modules of the chunked loss; the gradient takes the memory of the log-probabilities where it can."""
