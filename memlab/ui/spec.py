"""What a figure is: plain data, which a back end draws and a table tells."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from memlab.ui.palette import Dash

STACKED = ("area", "bar")
FILLED = (*STACKED, "block")


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """One line, one layer of a stack of areas or of bars, a tick across each bar, or blocks in lanes."""

    name: str
    x: NDArray | tuple[str, ...]
    y: NDArray
    """As long as `x`, in the figure's unit. Of blocks: four corners each, and NaN in both between two."""
    colour: str
    dash: Dash = "solid"
    kind: Literal["line", "area", "bar", "tick", "block"] = "line"
    stepped: bool = False
    """A line that holds each value until the next, as areas do."""
    faded: bool = False
    """Drawn pale: foretold, not measured."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A part of the x axis: a phase of the step."""

    label: str
    """"": too narrow for its name."""
    first: float
    last: float
    shaded: bool


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A point that is named inside the figure."""

    text: str
    x: float
    y: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Heat:
    """Cells over two lists of words; on the axes they stand at whole numbers, from 0."""

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    """From the ground up."""
    shades: NDArray
    """The larger, the darker; NaN: no cell yet. Shape (rows, columns)."""
    words: tuple[tuple[str, ...], ...]
    """Said in each cell."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """The same facts as text. The first column heads its row."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Figure:
    """All that a chart shows."""

    title: str
    note: str = ""
    """Said small beside the title."""
    x_label: str
    y_label: str
    """With the unit."""
    series: tuple[Series, ...] = ()
    """Areas and bars from the ground up."""
    spans: tuple[Span, ...] = ()
    mark: Mark | None = None
    heat: Heat | None = None
    """Drawn below the series."""
    lanes: tuple[str, ...] = ()
    """Names on the y axis, at whole numbers from 0 up, instead of numbers."""
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    log_y: bool = False
    legend: bool = True
    """Off where another figure beside this one has the same colours and names them."""
    whole_x: bool = False
    """x counts things: ticks at whole numbers only."""
    table: Table = field(default_factory=lambda: Table(caption="", header=(), rows=()))

    @property
    def top(self) -> float:
        """Largest y that is drawn, stacks added up; 0 where nothing is drawn."""
        stacked = [series.y for series in self.series if series.kind in STACKED and len(series.y)]
        lines = [
            float(np.nanmax(s.y)) for s in self.series if s.kind not in STACKED and np.isfinite(s.y).any()
        ]
        return max([float(np.max(np.sum(stacked, axis=0))) if stacked else 0.0, *lines], default=0.0)
