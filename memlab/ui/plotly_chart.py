"""The plotly back end: a figure as plotly.js traces and layout, updated in one message."""

import time
from typing import Any

import numpy as np
from ipywidgets import Layout as Size
from ipywidgets import VBox
from numpy.typing import NDArray

from memlab.ui.palette import HEAT_COLOURS
from memlab.ui.plotly_widget import DRAWN, PlotlyView, plotly_library
from memlab.ui.spec import Figure, Heat, Mark, Series, Span

SHADE = "rgba(128, 128, 128, 0.13)"
GRID = "rgba(128, 128, 128, 0.25)"
WORDS = "#444444"
"""Where no style sheet says otherwise (the panel's does, for each theme)."""
MARGIN = {"l": 52, "r": 14, "t": 18, "b": 36}
NAME_RISE = 18
"""Pixels between the highest point of a figure and the name of the one that it names."""
PATIENCE_SECONDS = 4.0
"""How long a view may leave unanswered what it was sent first."""
REPLACEMENTS = 3
"""A kernel whose cell blocks hears no answers: it does not replace views for ever."""
FADED = 0.38
"""Share of its colour that a foretold area keeps."""
EMPTY = Figure(title="", x_label="", y_label="")
TICK_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class PlotlyChart:
    """Draws figures of one kind; the browser changes the traces in place and keeps the zoom."""

    interval = 0.1

    def __init__(self, height: int) -> None:
        self.figure: Figure | None = None
        self.height = height
        self._replaced = 0
        self.view = self._new_view()
        self.widget = VBox([plotly_library(), self.view])

    def draw(self, figure: Figure) -> None:
        """Send `figure`: one message, of what has changed alone."""
        self._send(figure)
        self.figure = figure
        if self.view.traces and self._shown and not self._drawn:
            self._replace_if_deaf()

    def _send(self, figure: Figure) -> None:
        with self.view.hold_sync():
            self.view.traces = _traces(figure)
            self.view.look = _look(figure, self.height)

    def _new_view(self) -> PlotlyView:
        self._shown = self._drawn = False
        self._waiting_since: float | None = None
        # All that is known goes with the view: an update that overtakes its making would be lost.
        figure = self.figure if self.figure is not None else EMPTY
        view = PlotlyView(
            traces=_traces(figure),
            look=_look(figure, self.height),
            layout=Size(width="100%", height=f"{self.height}px"),
        )
        view.on_msg(self._heard)
        return view

    def _heard(self, view: PlotlyView, message: object, _buffers: object) -> None:
        if view is self.view:
            self._shown = True
            self._drawn = self._drawn or message == DRAWN

    def _replace_if_deaf(self) -> None:
        """Give the page another view where the one that it shows does not draw what it is sent.

        Seen on a busy machine in JupyterLab 4.6, 5 of 37 page loads: one chart kept its empty start
        while the kernel sent it all. Why is not proven; perhaps the browser held two models of it.
        """
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        elif now - self._waiting_since > PATIENCE_SECONDS and self._replaced < REPLACEMENTS:
            self._replaced += 1
            self.view.close()
            self.view = self._new_view()
            self.widget.children = [plotly_library(), self.view]


def _trace(series: Series, width: int = 2) -> dict[str, Any]:
    words = {
        "name": series.name,
        "x": list(series.x) if isinstance(series.x, tuple) else _bytes(series.x),
        "y": _bytes(series.y),
        "hovertemplate": f"%{{y:.4~g}} {_plain(series.name)}<extra></extra>",
    }
    match series.kind:
        case "bar":
            return {**words, "type": "bar", "marker": {"color": series.colour}}
        case "line":
            line = {"color": series.colour, "dash": series.dash, "width": width}
            # A line of one point would be invisible.
            mode = "lines" if len(series.y) > 1 else "lines+markers"
            line["shape"] = "hv" if series.stepped else "linear"
            return {**words, "type": "scatter", "mode": mode, "line": line}
        case "tick":
            size = max(10, min(34, 84 // max(1, len(series.x))))  # as wide as a bar of so many
            tick = {"symbol": "line-ew", "size": size, "line": {"width": 3, "color": series.colour}}
            return {**words, "type": "scatter", "mode": "markers", "marker": tick}
        case "area":
            line = {"color": series.colour, "width": 0, "shape": "hv"}
            fill = _pale(series.colour) if series.faded else series.colour
            stack = {"stackgroup": "bytes", "fillcolor": fill}
            return {**words, **stack, "type": "scatter", "mode": "lines", "line": line}
        case "block":
            fill = {"fill": "toself", "fillcolor": series.colour, "hoveron": "fills", "hoverinfo": "name"}
            line = {"color": series.colour, "width": 1}  # else a block of less than a pixel is not seen
            return {**words, **fill, "type": "scatter", "mode": "lines", "line": line}


def _plain(name: str) -> str:
    """Return `name` such that plotly.js neither takes it for markup nor fills it in."""
    return name.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "%&#123;")


def _traces(figure: Figure) -> list[dict[str, Any]]:
    if figure.heat is None:
        return [*map(_trace, figure.series)]
    return [_heat(figure.heat), *(_trace(series, width=3) for series in figure.series)]  # wider than the gaps


def _heat(heat: Heat) -> dict[str, Any]:
    shades = [[None if np.isnan(shade) else float(shade) for shade in row] for row in heat.shades]
    return {
        "type": "heatmap",
        "z": shades,
        "text": [list(row) for row in heat.words],
        "texttemplate": "%{text}",
        "textfont": {"color": "#222222", "size": 12},
        "hoverinfo": "skip",  # each cell says it already
        "colorscale": [[0, HEAT_COLOURS[0]], [1, HEAT_COLOURS[1]]],
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
    }


def _pale(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {FADED})"


def _bytes(values: NDArray) -> bytes:
    return np.ascontiguousarray(values, "<f8").tobytes()


def _look(figure: Figure, height: int) -> dict[str, Any]:
    return {
        "height": height,
        "margin": {**MARGIN, "l": 64} if figure.heat else MARGIN,  # its numbers are long
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": WORDS, "family": "system-ui, sans-serif"},
        "showlegend": False,
        "barmode": "stack",
        "bargap": 0.35,
        "hovermode": False if figure.heat else "closest" if figure.lanes else "x unified",
        "hoverlabel": {"bgcolor": "#ffffff", "font": {"color": "#222222", "size": 11}},
        "uirevision": "keep",
        "xaxis": _x_axis(figure),
        "yaxis": _y_axis(figure),
        "shapes": [_shade(span) for span in figure.spans if span.shaded],
        "annotations": [
            *(_name(span) for span in figure.spans if span.label),
            *([_named_point(figure.mark, figure, height)] if figure.mark else []),
        ],
    }


def _axis(figure: Figure, label: str, span: tuple[float, float] | None) -> dict[str, Any]:
    return {
        "title": {"text": label, "font": {"size": 12}, "standoff": 4},
        "tickfont": {"size": 12},
        "gridcolor": GRID,
        "zeroline": False,
        "visible": bool(figure.series or figure.heat),
        "autorange": span is None,
        **({"range": list(span)} if span else {}),
    }


def _x_axis(figure: Figure) -> dict[str, Any]:
    if figure.heat:
        return {**_axis(figure, figure.x_label, figure.x_range), **_words(figure.heat.columns)}
    ticks = {"tick0": 0, "dtick": _whole_tick(figure)} if figure.whole_x else {"nticks": 8}
    return {**_axis(figure, figure.x_label, figure.x_range), **ticks}


def _y_axis(figure: Figure) -> dict[str, Any]:
    if figure.heat:
        return {**_axis(figure, figure.y_label, figure.y_range), **_words(figure.heat.rows)}
    if figure.lanes:
        return {**_axis(figure, figure.y_label, figure.y_range), **_words(figure.lanes)}
    scale = {"type": "log"} if figure.log_y else {"nticks": 6}
    return {**_axis(figure, figure.y_label, figure.y_range), **scale}


def _words(names: tuple[str, ...]) -> dict[str, Any]:
    places = list(range(len(names)))
    return {"tickmode": "array", "tickvals": places, "ticktext": list(names), "showgrid": False}


def _whole_tick(figure: Figure) -> int:
    """Return the distance of ticks that keeps them at whole numbers, about eight of them."""
    length = max((float(series.x[-1]) for series in figure.series), default=1.0)
    return next((step for step in TICK_STEPS if length / step <= 8), round(length / 8))


def _shade(span: Span) -> dict[str, Any]:
    edges = {"x0": span.first, "x1": span.last, "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "rect", "layer": "below", "line": {"width": 0}, "fillcolor": SHADE, **edges}


def _name(span: Span) -> dict[str, Any]:
    place = {"x": (span.first + span.last) / 2, "y": 1, "yref": "paper", "yanchor": "bottom"}
    return {"text": span.label, "showarrow": False, "font": {"size": 11}, **place}


def _named_point(mark: Mark, figure: Figure, height: int) -> dict[str, Any]:
    """Return the name of a point, above all that is drawn: a line through it could not be read."""
    first, last = figure.x_range or (mark.x, mark.x)
    place = (mark.x - first) / (last - first) if last > first else 0.5
    anchor = "left" if place < 0.25 else "right" if place > 0.75 else "center"
    ground, ceiling = figure.y_range or (0.0, figure.top)
    pixels = (height - MARGIN["t"] - MARGIN["b"]) / (ceiling - ground or 1.0)
    rise = NAME_RISE + max(0.0, figure.top - mark.y) * pixels
    arrow = {"showarrow": True, "arrowhead": 2, "arrowwidth": 1.2, "arrowcolor": WORDS, "ax": 0, "ay": -rise}
    text = {"text": f"<b>{mark.text}</b>", "font": {"size": 12}, "xanchor": anchor}
    return {**text, **arrow, "x": mark.x, "y": mark.y}
