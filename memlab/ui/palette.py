"""Colours, dashes and names of what the figures show. Colours: Okabe and Ito (2008), and greys."""

from typing import Literal

Dash = Literal["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"]

CATEGORY_COLOURS: dict[str, str] = {
    "parameters": "#0072B2",
    "buffers": "#6E6E6E",
    "optimizer_state": "#56B4E9",
    "gradients": "#009E73",
    "communication_buffers": "#D55E00",
    "low_precision_copies": "#F0E442",
    "inputs": "#999999",
    "activations": "#E69F00",
    "temporaries": "#CC79A7",
}
"""In the order of the stack, from the ground up: what stays below what comes and goes."""

LINE_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#B8568F", "#8073AC")
"""Lines keep a contrast of 3 and more on white and on JupyterLab's dark ground."""

DASHES: tuple[Dash, ...] = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
"""One more than colours, so that the first thirty lines differ in colour or dash."""

NEUTRAL = "#808080"

INK = "#1c1c1c"
"""Of predictions; the style sheet turns it into the theme's own ink, light on dark."""
BUDGET = "#D55E00"

HEAT_COLOURS = ("#F2F7FC", "#7FB8E0")
"""Of the least and the largest cell: dark letters read on both, in a light theme and in a dark one."""


def category_label(category: str) -> str:
    """Return a category's name as people say it.

    >>> category_label("low_precision_copies")
    'low-precision copies'
    """
    return category.replace("low_precision", "low-precision").replace("_", " ")


def line_style(index: int) -> tuple[str, Dash]:
    """Return colour and dash of line number `index`; number 0, solid, is the run that goes on."""
    return LINE_COLOURS[index % len(LINE_COLOURS)], DASHES[index % len(DASHES)]
