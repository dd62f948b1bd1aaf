"""Choosing among the runs that are shown: pin, name, delete, save."""

from collections.abc import Sequence

from ipywidgets import Button, Dropdown, HBox, Text
from ipywidgets import Layout as Size

from memlab.ui.fields import name_class
from memlab.ui.records import Record


class Shelf:
    """The widgets that act on one of the runs."""

    def __init__(self) -> None:
        self.chosen = Dropdown(options=[("no run yet", "")], layout=Size(width="auto"))
        self.name = Text(placeholder="name", continuous_update=False, layout=Size(width="auto"))
        self.pin_button = _button("Pin", "Keep this run's curves and its row")
        self.delete_button = _button("Delete", "Forget this run")
        self.save_button = _button("Save", "Write this run to a JSON file in the notebook's folder")
        self.names = {name_class("chosen-run"): "run to act on", name_class("run-name"): "name of this run"}
        self.chosen.add_class(name_class("chosen-run"))
        self.name.add_class(name_class("run-name"))
        self.widget = HBox([self.chosen, self.name, self.pin_button, self.delete_button, self.save_button])
        self.widget.add_class("memlab-manage")
        self.offer([])

    def offer(self, records: Sequence[Record], chosen: str | None = None) -> None:
        """List the finished ones of `records`; choose the one with the letter `chosen`, if given."""
        finished = [record for record in records if record.run is not None]
        options = tuple((record.label, record.letter) for record in finished) or (("no run yet", ""),)
        wanted = self.chosen.value if chosen is None else chosen
        letters = [letter for _, letter in options]
        if tuple(self.chosen.options) != options:
            self.chosen.options = options
        self.chosen.value = wanted if wanted in letters else letters[-1]
        for widget in (self.chosen, self.name, self.pin_button, self.delete_button, self.save_button):
            widget.disabled = not finished
        self._fit(finished)

    def _fit(self, finished: Sequence[Record]) -> None:
        record = next((record for record in finished if record.letter == self.chosen.value), None)
        self.pin_button.description = "Unpin" if record is not None and record.pinned else "Pin"
        self.name.value = record.name if record is not None else ""


def _button(description: str, tooltip: str) -> Button:
    return Button(description=description, tooltip=tooltip, layout=Size(width="auto"))
