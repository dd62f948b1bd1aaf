"""The peaks of a metered run, kept up step by step, and the steps whose changes are kept."""

from typing import Literal

import numpy as np

from memlab.trace import PHASES, Breakdown, Trace


class Peaks:
    """Takes the trace of each step; knows the largest instants of all of them.

    `keep="selected"`: of the changes, those of the first two steps, the peak's and the last stay.
    """

    def __init__(self, keep: Literal["all", "selected"]) -> None:
        self._keep = keep
        self._parts: dict[int, Trace] = {}
        self._peak_step = 0
        self.last = Trace.join([])
        self.of_steps: list[int] = []
        """Peak of live bytes of each step."""
        self.peak = Breakdown()
        self.by_phase: dict[str, Breakdown] = {}

    def add(self, part: Trace) -> None:
        """Take the changes of one step, or of a part of it that follows what was taken before."""
        step = int(part.step[-1]) if len(part) else len(self.of_steps)
        if step in self._parts and step == len(self.of_steps) - 1:
            part = Trace.join([self._parts[step], part])
            self.of_steps.pop()
        peak = part.peak
        self.of_steps.append(peak.total)
        if peak.total > self.peak.total:
            self.peak, self._peak_step = peak, step
        self._take_phases(part)
        self.last = self._parts[step] = part
        self._thin()

    def _take_phases(self, part: Trace) -> None:
        totals = part.totals
        for number in np.unique(part.phase):
            inside = np.flatnonzero(part.phase == number)
            best = int(inside[np.argmax(totals[inside])])
            known = self.by_phase.get(PHASES[number])
            if known is None or totals[best] > known.total:
                self.by_phase[PHASES[number]] = part.at(best)

    def _thin(self) -> None:
        if self._keep == "selected":
            steps = sorted(self._parts)
            for step in steps[2:-1]:
                if step != self._peak_step:
                    del self._parts[step]

    def trace(self) -> Trace:
        """Return the changes that are kept, as one trace."""
        return Trace.join([self._parts[step] for step in sorted(self._parts)])
