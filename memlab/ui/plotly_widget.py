"""plotly.js in a widget of our own: loaded once a page, and told all of a chart in one message.

plotly's FigureWidget carries 5 MB of code for each chart, and drops what it is told before the
browser has loaded them; five charts on a slow machine came up empty.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import uuid4

import anywidget
import traitlets


class PlotlyLibrary(anywidget.AnyWidget):
    """Carries the installed plotly's plotly.js to the page."""

    _esm = Path(__file__).with_name("plotly_library.js")
    source = traitlets.Unicode().tag(sync=True)


class PlotlyView(anywidget.AnyWidget):
    """Draws what its two traits say.

    A browser that restores a kernel's widgets while they are being made can hold two models of one
    widget, of which one alone hears of changes. The view looks up its model by `address`, known from
    the start, and follows the one that is heard.
    """

    _esm = Path(__file__).with_name("plotly_view.js")
    address = traitlets.Unicode().tag(sync=True)
    traces = traitlets.List().tag(sync=True)
    """plotly.js traces; x and y as bytes of little-endian float64, or as lists of text."""
    look = traitlets.Dict().tag(sync=True)
    """plotly.js layout, without width."""

    def __init__(self, **traits: Any) -> None:
        address = uuid4().hex
        super().__init__(model_id=address, address=address, **traits)


@cache
def plotly_library() -> PlotlyLibrary:
    """Return the kernel's one library widget."""
    place = files("plotly").joinpath("package_data/plotly.min.js")
    return PlotlyLibrary(source=place.read_text(encoding="utf-8"))
