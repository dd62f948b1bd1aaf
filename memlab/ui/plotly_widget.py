"""plotly.js in a widget of our own: loaded once a page, and told all of a chart in one message.

plotly's FigureWidget carries 5 MB of code for each chart, and drops what it is told before the
browser has loaded them; five charts on a slow machine came up empty.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path

import anywidget
import traitlets

SHOWN, DRAWN = "shown", "drawn"


class PlotlyLibrary(anywidget.AnyWidget):
    """Carries the installed plotly's plotly.js to the page."""

    _esm = Path(__file__).with_name("plotly_library.js")
    source = traitlets.Unicode().tag(sync=True)


class PlotlyView(anywidget.AnyWidget):
    """Draws what its two traits say; sends SHOWN when it is on a page, DRAWN once it drew a trace."""

    _esm = Path(__file__).with_name("plotly_view.js")
    traces = traitlets.List().tag(sync=True)
    """plotly.js traces; x and y as bytes of little-endian float64, or as lists of text."""
    look = traitlets.Dict().tag(sync=True)
    """plotly.js layout, without width."""


@cache
def plotly_library() -> PlotlyLibrary:
    """Return the kernel's one library widget."""
    place = files("plotly").joinpath("package_data/plotly.min.js")
    return PlotlyLibrary(source=place.read_text(encoding="utf-8"))
