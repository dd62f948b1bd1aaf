"""How a figure is drawn: one small interface, and the choice between its back ends."""

import os
import sys
from typing import Any, Literal, Protocol, get_args

from ipywidgets import HTML, Widget
from typing_extensions import assert_never

from memlab.ui.spec import Figure

Backend = Literal["plotly", "image", "none"]


class Chart(Protocol):
    """Draws figures of one kind into one widget."""

    widget: Widget
    interval: float
    """Seconds between two drawings while a run goes on."""
    figure: Figure | None
    """What is drawn now."""

    def draw(self, figure: Figure) -> None:
        """Show `figure` instead of what is drawn now."""


class NoChart:
    """Draws nothing; the tables tell all."""

    interval = 0.5

    def __init__(self, height: int) -> None:
        self.widget = HTML()
        self.widget.layout.display = "none"
        self.figure: Figure | None = None

    def draw(self, figure: Figure) -> None:
        """Keep `figure` for its table."""
        self.figure = figure


def chart(backend: Backend, height: int) -> Chart:
    """Return an empty chart of `height` pixels."""
    match backend:
        case "plotly":
            from memlab.ui.plotly_chart import PlotlyChart

            return PlotlyChart(height)
        case "image":
            from memlab.ui.picture_chart import PictureChart

            return PictureChart(height)
        case "none":
            return NoChart(height)
        case _:
            assert_never(backend)


def choose_backend() -> Backend:
    """Return what MEMLAB_CHARTS says, else what the probe finds; raise ValueError where it says neither."""
    wish = os.environ.get("MEMLAB_CHARTS")
    if wish:  # set to nothing is not set
        if wish not in get_args(Backend):
            raise ValueError(f"MEMLAB_CHARTS={wish!r} must be one of {', '.join(get_args(Backend))}.")
        return wish
    return probed_backend()


def backend_and_complaint() -> tuple[Backend, str]:
    """Return how the charts are drawn, and what is wrong with the environment's wish, or ""."""
    try:
        return choose_backend(), ""
    except ValueError as error:
        return (
            probed_backend(),
            f"{error} Until it is mended, the charts are drawn as this front end likes best.",
        )


def probed_backend() -> Backend:
    """Return the back end that this front end draws well, whatever the environment says."""
    shell = _shell()
    if shell is None or not hasattr(shell, "kernel"):
        return "none"
    # plotly's widget draws badly on Colab, and VS Code fetches its code from outside.
    if "google.colab" in sys.modules or "__vsc_ipynb_file__" in shell.user_ns:
        return "image"
    return "plotly"


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None
