"""The bench's widgets and how they lie; nothing here knows a run or a worker."""

from ipywidgets import HTML, Box, Button, HBox, VBox
from ipywidgets import Layout as Size

from memlab.ui.accessibility import Accessibility
from memlab.ui.card import Card
from memlab.ui.charts import Backend
from memlab.ui.controls import Controls
from memlab.ui.html import STYLE, error_html, note_html, status_html, text_html
from memlab.ui.memory_figure import memory_figure
from memlab.ui.rank_panel import RankPanel
from memlab.ui.run_figures import loss_figure, loss_scale_figure, run_peaks_figure, step_peaks_figure
from memlab.ui.shelf import Shelf


class Panel:
    """All that a learner sees."""

    def __init__(self, controls: Controls, backend: Backend) -> None:
        self.chip, self.state, self.progress = HTML(), HTML(), HTML()
        self.target, self.forecast = HTML(), HTML()
        self.cancel_button = _button("Cancel the prediction", "Give it up; the last prediction stays")
        self.error, self.notes, self.why = HTML(), HTML(), HTML()
        self.run_button = _button("Run", "Train with these settings")
        self.run_button.add_class("memlab-run")
        self.pause_button = _button("Pause", "Let the run wait after the micro-step it is in")
        self.stop_button = _button("Stop", "End the run; what it measured stays")
        self.shelf = Shelf()
        self.memory = Card("memory", memory_figure(None), backend, height=236)
        self.loss = Card("loss", loss_figure([]), backend, height=186)
        self.peaks = Card("peaks", run_peaks_figure([]), backend, height=186, beside=self.shelf.widget)
        self.step_peaks = Card("step-peaks", step_peaks_figure([]), backend, height=176)
        self.loss_scale = Card("loss-scale", loss_scale_figure([]), backend, height=176)
        self.ranks = RankPanel(backend)
        self.cards = (
            self.memory, self.loss, self.peaks, self.step_peaks, self.loss_scale, *self.ranks.cards,
        )  # fmt: skip
        self.show_loss_scale(False)
        self.names = Accessibility(names=self._names(controls))
        self.widget = self._laid_out(controls)

    def show_loss_scale(self, shown: bool) -> None:
        """Show or hide the loss scale's card."""
        self.loss_scale.widget.layout.display = "" if shown else "none"

    def say_state(self, device: str, state: str, progress: str) -> None:
        """Write the head line; `state` alone is read out by screen readers."""
        write(self.chip, text_html("memlab-chip", device))
        write(self.state, status_html(state))
        write(self.progress, text_html("memlab-numbers", progress))

    def say_forecast(self, target: str, words: str, notes: list[str], problem: str) -> None:
        """Write what is predicted and for what; `problem` instead where there is no prediction."""
        write(self.target, text_html("memlab-chip", target))
        said = error_html(problem) if problem else text_html("memlab-forecast", words)
        write(self.forecast, said + note_html(notes))

    def offer_cancel(self, offered: bool) -> None:
        """Show or hide the button that gives a prediction up."""
        display = "" if offered else "none"
        if self.cancel_button.layout.display != display:
            self.cancel_button.layout.display = display

    def say_error(self, sentence: str, details: str = "") -> None:
        """Show one red line; "" takes it back."""
        write(self.error, error_html(sentence, details))

    def say_notes(self, sentences: list[str]) -> None:
        """Show what the run wants a learner to know."""
        write(self.notes, note_html(sentences))

    def allow(self, *, run: bool, pause: bool, resume: bool, why: str) -> None:
        """Turn the buttons on and off; `why` says what Run waits for."""
        self.run_button.disabled = not run
        self.run_button.tooltip = why or "Train with these settings"
        self.pause_button.disabled = not (pause or resume)
        self.pause_button.description = "Resume" if resume else "Pause"
        self.stop_button.disabled = not (pause or resume)
        write(self.why, text_html("memlab-why", why))

    def _names(self, controls: Controls) -> dict[str, str]:
        cards = {name: text for card in self.cards for name, text in card.names.items()}
        return {**controls.names, **self.shelf.names, **cards}

    def _laid_out(self, controls: Controls) -> VBox:
        name = HTML(text_html("memlab-name", "memlab bench"))
        buttons = _box("memlab-buttons", self.run_button, self.pause_button, self.stop_button)
        self.cancel_button.add_class("memlab-small")
        self.offer_cancel(False)
        chips = _box("memlab-chips", self.chip, self.target)
        messages = _column("memlab-messages", self.error, self.why, self.notes)
        side = _column("memlab-side", controls.widget, self.forecast, self.cancel_button)
        charts = _column(
            "memlab-charts",
            self.memory.widget,
            self.ranks.widget,
            _box(
                "memlab-row",
                *(card.widget for card in (self.peaks, self.loss, self.step_peaks, self.loss_scale)),
            ),
        )
        for widget, kind in ((self.state, "memlab-state"), (self.progress, "memlab-progress")):
            widget.add_class(kind)
        return _column(
            "memlab-bench",
            HTML(STYLE),
            _box("memlab-top", name, buttons, self.state, self.progress, chips, self.names),
            _box("memlab-body", messages, side, charts),
        )


def write(widget: HTML, html: str) -> None:
    """Set the text of `widget`; send nothing where nothing changed."""
    if widget.value != html:
        widget.value = html


def _button(description: str, tooltip: str) -> Button:
    return Button(description=description, tooltip=tooltip, layout=Size(width="auto"))


def _box(kind: str, *children: object) -> Box:
    box = HBox(children)
    box.add_class(kind)
    return box


def _column(kind: str, *children: object) -> VBox:
    column = VBox(children)
    column.add_class(kind)
    return column
