"""The bench's single controls: a name, a value, the widget, and a place for its error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ipywidgets import (
    HTML,
    Dropdown,
    FloatLogSlider,
    HBox,
    IntSlider,
    Label,
    Text,
    ToggleButtons,
    VBox,
    Widget,
)
from ipywidgets import Layout as Size

from memlab.ui.html import error_html


@dataclass(frozen=True, kw_only=True, eq=False)
class Field:
    """One field of the plan as a control."""

    name: str
    """Of the Plan's field."""
    label: str
    """What it is called for people, also by screen readers."""
    widget: Widget
    block: VBox
    """Label, widget and error, as shown."""
    error: HTML

    @property
    def value(self) -> Any:
        """What is set now."""
        return self.widget.value

    def say(self, sentence: str) -> None:
        """Show why the value is impossible; "" takes it back."""
        html = error_html(sentence)
        if self.error.value != html:
            self.error.value = html
            self.error.layout.display = "" if sentence else "none"

    def offer(self, options: Sequence[tuple[str, Any]]) -> None:
        """Change the choices; the value stays where it is still one of them, else the first is taken."""
        if tuple(self.widget.options) == tuple(options):
            return
        before = self.widget.value
        self.widget.options = tuple(options)
        values = [value for _, value in options]
        self.widget.value = before if before in values else values[0]

    def show(self, shown: bool) -> None:
        """Show or hide the control."""
        self.block.layout.display = "" if shown else "none"


def whole_number(name: str, label: str, value: int, highest: int, lowest: int = 1) -> Field:
    """Return a slider; it reaches further where `value` asks for it."""
    slider = IntSlider(value, lowest, max(highest, value), continuous_update=False, readout=False)
    return _field(name, label, slider, shown=str)


def log_number(name: str, label: str, value: float, lowest: int, highest: int) -> Field:
    """Return a slider between powers of ten, with steps of a tenth of a decade."""
    slider = FloatLogSlider(value, min=lowest, max=highest, step=0.1, continuous_update=False, readout=False)
    return _field(name, label, slider, shown=lambda number: f"{number:.2g}")


def buttons(
    name: str, label: str, value: Any, options: Sequence[tuple[str, Any]], *, head: bool = True
) -> Field:
    """Return a row of buttons, one of them down; without `head` it belongs to the row above."""
    widget = ToggleButtons(options=tuple(options), value=value, style={"button_width": "auto"})
    widget.add_class("memlab-toggles")
    return _field(name, label, widget, quiet=not head)


def choice(name: str, label: str, value: Any, options: Sequence[tuple[str, Any]]) -> Field:
    """Return a drop-down list."""
    return _field(name, label, Dropdown(options=tuple(options), value=value), quiet=True)


def text(name: str, label: str, value: str, placeholder: str) -> Field:
    """Return a line to write in; it counts when Enter is pressed or the line is left."""
    return _field(
        name, label, Text(value=value, placeholder=placeholder, continuous_update=False), quiet=True
    )


def _field(
    name: str, label: str, widget: Widget, *, shown: Callable[[Any], str] | None = None, quiet: bool = False
) -> Field:
    widget.layout = Size(width="auto")
    widget.add_class(name_class(name))
    error = HTML(layout=Size(display="none"))
    head = [] if quiet else [_head(label, widget, shown)]
    block = VBox([*head, widget, error])
    block.add_class("memlab-field")
    return Field(name=name, label=label, widget=widget, block=block, error=error)


def _head(label: str, widget: Widget, shown: Callable[[Any], str] | None) -> Widget:
    title = Label(label)
    if shown is None:
        title.add_class("memlab-heading")
        return title
    readout = Label(shown(widget.value))
    readout.add_class("memlab-readout")
    widget.observe(lambda change: setattr(readout, "value", shown(change["new"])), "value")
    row = HBox([title, readout])
    row.add_class("memlab-head")
    return row


def name_class(name: str) -> str:
    """Return the class by which the accessible name finds its widget."""
    return f"memlab-is-{name.replace('_', '-')}"


def heading(text: str) -> Label:
    """Return the head of a group of controls."""
    label = Label(text)
    label.add_class("memlab-heading")
    return label
