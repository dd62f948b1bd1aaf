"""The ghost: what was predicted, laid over what is measured or shown alone before the first run."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memlab.events import StepMemory
from memlab.ui.palette import BUDGET, INK
from memlab.ui.scale import Scale
from memlab.ui.spec import Series
from memlab.units import format_bytes, signed_bytes

IN_RANGE = 1.6
"""A budget up to this many times the highest level is drawn; further up it would flatten the rest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ghost:
    """A predicted step, beside a measured one or alone."""

    memory: StepMemory
    name: str
    """What it is predicted for."""
    of_this_run: bool = False
    """It is the prediction of the run that is drawn: difference and step agree."""
    budget_bytes: int | None = None
    """What a card leaves for tensors; None without a card."""
    card: str = ""

    @property
    def peak(self) -> int:
        """Largest predicted total, bytes."""
        return self.memory.peak["total"]

    def words(self, measured: StepMemory | None) -> str:
        """Return its line of the legend."""
        if self.of_this_run and measured is not None:
            difference = signed_bytes(measured.peak["total"] - self.peak)
            return f"predicted before the run: peak {format_bytes(self.peak)}; measured - predicted = {difference}"
        return f"ghost: predicted for {self.name}, peak {format_bytes(self.peak)}"

    def line(self, measured: StepMemory | None, scale: Scale) -> Series:
        """Return its total as a dotted line over the phases of `measured`."""
        position = np.asarray(self.memory.position, float)
        totals = np.sum(np.asarray(self.memory.by_category, float), axis=0)
        x = position if measured is None else stretched(position, self.memory, measured)
        return Series(
            name=self.words(measured), x=x, y=totals / scale.unit, colour=INK, dash="dot", stepped=True
        )

    def budget(self, top: float, x_range: tuple[float, float], scale: Scale) -> list[Series]:
        """Return the card's limit as a line, where it lies in the range of what else is drawn."""
        if self.budget_bytes is None or self.budget_bytes > IN_RANGE * top:
            return []
        height = np.full(2, self.budget_bytes / scale.unit)
        name = f"budget: {format_bytes(self.budget_bytes)} for tensors on {self.card}"
        return [Series(name=name, x=np.asarray(x_range, float), y=height, colour=BUDGET, dash="dash")]


def stretched(position: NDArray, ghost: StepMemory, measured: StepMemory) -> NDArray:
    """Return the ghost's positions moved such that its phases lie over the measured ones of like name."""
    theirs, mine = _edges(ghost), _edges(measured)
    if [name for name, _ in theirs] == [name for name, _ in mine]:
        return np.interp(position, [place for _, place in theirs], [place for _, place in mine])
    return position * (mine[-1][1] / (theirs[-1][1] or 1.0))


def _edges(memory: StepMemory) -> list[tuple[str, float]]:
    """Return where each pass begins, and where the optimizer begins and ends."""
    passes = [
        (f"{phase} {number}", first) for phase, number, first, _ in memory.spans if phase != "optimizer"
    ]
    after = max((last for phase, _, _, last in memory.spans if phase != "optimizer"), default=0.0)
    return [*passes, ("optimizer", after), ("end", memory.position[-1] if memory.position else 0.0)]
