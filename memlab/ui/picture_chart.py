"""The picture back end: matplotlib into a core Image widget, for front ends that draw no plotly."""

import io
from typing import TYPE_CHECKING

import numpy as np
from ipywidgets import Image

from memlab.ui.html import DASH_ARRAYS
from memlab.ui.palette import HEAT_COLOURS
from memlab.ui.spec import Figure, Heat, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOTS_PER_INCH = 110
WIDTH = 860
"""Pixels; the style sheet scales the picture to its card."""


class PictureChart:
    """Draws figures as PNG, dark on white so that they read in any theme."""

    interval = 0.5  # four charts at about 20 ms each

    def __init__(self, height: int) -> None:
        self.figure: Figure | None = None
        self.height = height
        self.widget = Image(format="png")
        self.widget.layout.width = "100%"

    def draw(self, figure: Figure) -> None:
        """Show `figure` instead of the picture before."""
        # Loaded with the first picture: importing it may build a font cache, which takes seconds.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=(WIDTH / DOTS_PER_INCH, self.height / DOTS_PER_INCH), dpi=DOTS_PER_INCH)
        FigureCanvasAgg(canvas)  # not pyplot, whose state is shared and not for threads
        axes = canvas.subplots()
        if figure.heat:
            _draw_heat(axes, figure.heat)
        _draw_series(axes, figure)
        _draw_spans(axes, figure)
        _draw_axes(axes, figure)
        canvas.tight_layout(pad=0.4)
        png = io.BytesIO()
        canvas.savefig(png, format="png")
        self.widget.value = png.getvalue()
        self.figure = figure


def _draw_series(axes: "Axes", figure: Figure) -> None:
    from matplotlib.colors import to_rgba

    areas = [series for series in figure.series if series.kind == "area"]
    bars = [series for series in figure.series if series.kind == "bar"]
    if areas:
        colours = [to_rgba(series.colour, 0.38 if series.faded else 1.0) for series in areas]
        axes.stackplot(areas[0].x, *(series.y for series in areas), colors=colours, step="post", lw=0)
    ground = np.zeros(len(bars[0].x)) if bars else np.zeros(0)
    for series in bars:
        axes.bar(series.x, series.y, 0.65, ground, color=series.colour)
        ground = ground + series.y
    for series in figure.series:
        if series.kind == "line":
            marker = "o" if len(series.y) == 1 else ""  # a line of one point would be invisible
            style = {"drawstyle": "steps-post" if series.stepped else "default", "ls": _dashes(series)}
            axes.plot(series.x, series.y, marker=marker, color=series.colour, lw=1.6, **style)
        elif series.kind == "block":
            _draw_blocks(axes, series)
        elif series.kind == "tick":
            axes.plot(series.x, series.y, marker="_", ls="", ms=26, mew=2.5, color=series.colour)


def _draw_blocks(axes: "Axes", series: Series) -> None:
    from matplotlib.collections import PolyCollection

    corners = np.column_stack([series.x, series.y])
    blocks = [corners[first : first + 4] for first in range(0, len(corners), 5)]
    axes.add_collection(PolyCollection(blocks, facecolors=series.colour, edgecolors=series.colour, lw=0.8))


def _draw_heat(axes: "Axes", heat: Heat) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("memlab", HEAT_COLOURS)
    edges = (np.arange(len(names) + 1) - 0.5 for names in (heat.columns, heat.rows))
    axes.pcolormesh(*edges, np.ma.masked_invalid(heat.shades), cmap=colours, edgecolors="white")
    for row, words in enumerate(heat.words):
        for column, word in enumerate(words):
            axes.text(column, row, word, ha="center", va="center", fontsize=8, color="#222222")
    axes.set_xticks(range(len(heat.columns)), heat.columns)
    axes.set_yticks(range(len(heat.rows)), heat.rows)


def _dashes(series: Series) -> tuple[int, tuple[float, ...]] | str:
    lengths = tuple(float(length) / 2 for length in DASH_ARRAYS[series.dash].split())
    return (0, lengths) if lengths else "-"


def _draw_spans(axes: "Axes", figure: Figure) -> None:
    for span in figure.spans:
        if span.shaded:
            axes.axvspan(span.first, span.last, color="#808080", alpha=0.13, lw=0, zorder=0)
        place = ((span.first + span.last) / 2, 1.01)
        axes.text(*place, span.label, transform=axes.get_xaxis_transform(), ha="center", fontsize=8)
    if figure.mark:
        from matplotlib.transforms import offset_copy

        start, end = figure.x_range or (figure.mark.x, figure.mark.x)
        share = (figure.mark.x - start) / (end - start) if end > start else 0.5
        side = "left" if share < 0.15 else "right" if share > 0.85 else "center"
        axes.annotate(
            figure.mark.text,
            (figure.mark.x, figure.mark.y),
            (figure.mark.x, max(figure.mark.y, figure.top)),  # above a ghost's line too, which would cross it
            textcoords=offset_copy(axes.transData, axes.figure, y=14, units="points"),
            ha=side,
            fontsize=8,
            fontweight="bold",
            arrowprops={"arrowstyle": "->"},
        )


def _draw_axes(axes: "Axes", figure: Figure) -> None:
    axes.set_xlabel(figure.x_label, fontsize=8)
    axes.set_ylabel(figure.y_label, fontsize=8)
    axes.tick_params(labelsize=8)
    if figure.lanes:
        axes.set_yticks(range(len(figure.lanes)), figure.lanes)
    if figure.heat is None:
        axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if figure.log_y and figure.series:
        axes.set_yscale("log", base=2)
    if figure.whole_x:
        axes.xaxis.get_major_locator().set_params(integer=True)
    if figure.x_range and figure.x_range[0] < figure.x_range[1]:
        axes.set_xlim(*figure.x_range)
    if figure.y_range:
        axes.set_ylim(*figure.y_range)
