"""Accessible names for widgets that have none."""

from pathlib import Path

import anywidget
import traitlets


class Accessibility(anywidget.AnyWidget):
    """Invisible; works on all that lies in the same panel."""

    _esm = Path(__file__).with_name("accessibility.js")
    names = traitlets.Dict().tag(sync=True)
    """Accessible name by class of the widget."""
