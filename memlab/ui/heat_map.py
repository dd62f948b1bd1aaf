"""The planner's heat map: peak over micro-batch and sequence length, each card's limit as a line."""

import threading
import time
from collections.abc import Sequence
from typing import Any

from ipywidgets import HTML, HBox, VBox

from memlab.catalog import MODELS
from memlab.engine.predictor import Prediction, Predictor, Question, Refusal
from memlab.memory.cards import card as card_named
from memlab.plan import Plan, PlanError
from memlab.ui.accessibility import Accessibility
from memlab.ui.card import Card
from memlab.ui.charts import choose_backend
from memlab.ui.guard import guarded
from memlab.ui.heat_map_choices import Choices
from memlab.ui.heat_map_figure import Grid, available_bytes, heat_map_figure
from memlab.ui.html import STYLE, error_html, status_html, table_html, text_html
from memlab.ui.panel import write
from memlab.ui.pump import Pump
from memlab.ui.spec import Figure

CARDS = ("rtx-4090", "a100-40gb", "a100-80gb")
MICRO_BATCH_SIZES = (1, 2, 4, 8, 16)
SEQUENCE_LENGTHS = (256, 512, 1024, 2048, 4096)


class HeatMapError(RuntimeError):
    """Says in one sentence why a cell has no prediction."""


class HeatMap:
    """Show it as the last line of a cell: it fills while you read. Or `HeatMap(...).compute()`, without widgets.

    Cells are predicted in a process of their own, by the kernels of the largest of `cards`.
    """

    def __init__(
        self,
        cards: Sequence[str] = CARDS,
        *,
        micro_batch_sizes: Sequence[int] = MICRO_BATCH_SIZES,
        sequence_lengths: Sequence[int] = SEQUENCE_LENGTHS,
        **plan_fields: Any,
    ) -> None:
        """Take the Plan's fields to start from; raise PlanError, CardError, or ValueError on an empty axis."""
        chosen = sorted({card_named(name) for name in cards}, key=available_bytes)
        if not (chosen and micro_batch_sizes and sequence_lengths):
            raise ValueError("cards, micro_batch_sizes and sequence_lengths must each name one at least.")
        self._choices = Choices(plan_fields)
        self._sizes, self._lengths = sorted({*micro_batch_sizes}), sorted({*sequence_lengths})
        self._cards = tuple(chosen)
        self._lock = threading.RLock()
        self._known: dict[Plan, int] = {}
        self._predictor = Predictor()
        self._closed = False
        self.last_error: str | None = None
        """The sentence of the red line; None where all went well."""
        self._plans = self._wanted()  # raises here, before anything is shown
        self._chart = Card("heat-map", self.figure, choose_backend(), height=300)
        self._state, self._error = HTML(), HTML()
        self._pump = Pump(self._tick)
        self._widget = self._laid_out()
        self._choices.watch(self._changed)
        self._show()

    @property
    def peaks(self) -> dict[tuple[int, int], int]:
        """The allocator's peak reserve in bytes by (micro-batch size, sequence length), as far as predicted."""
        return {cell: self._known[plan] for cell, plan in self._plans.items() if plan in self._known}

    @property
    def figure(self) -> Figure:
        """What is drawn now."""
        lengths = sorted({length for _, length in self._plans})
        grid = Grid(micro_batch_sizes=tuple(self._sizes), sequence_lengths=tuple(lengths), cards=self._cards)
        return heat_map_figure(grid, self.peaks, self._choices.words)

    def compute(self, **plan_fields: Any) -> dict[tuple[int, int], int]:
        """Predict every cell, wait for it and return `peaks`; `plan_fields` change the settings first."""
        with self._lock:
            self._choices.set(plan_fields)
            self._changed()
        while True:
            with self._lock:
                if self.last_error:
                    raise HeatMapError(self.last_error)
                if not self._missing():
                    return self.peaks
                self._tick()
            time.sleep(0.01)

    def close(self) -> None:
        """End the process and the thread; what was predicted stays."""
        self._closed = True
        self._pump.close()
        with self._lock:
            self._predictor.close()

    def report(self, sentence: str, details: str = "") -> None:
        """Show one red line, and keep it as `last_error`."""
        self.last_error = sentence
        write(self._error, error_html(sentence, details))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return the live map, and what notebooks without widgets show instead."""
        if not self._closed:
            self._pump.start()
        view = {"version_major": 2, "version_minor": 0, "model_id": self._widget.model_id}
        return {
            "application/vnd.jupyter.widget-view+json": view,
            "text/plain": "memlab heat map: run this cell to use it",
            "text/html": table_html(self.figure.table),
        }

    def _wanted(self) -> dict[tuple[int, int], Plan]:
        """Return the plan of every cell; the shortest texts and the smallest micro-batches first."""
        context = MODELS[self._choices.model].context
        lengths = [length for length in self._lengths if context is None or length <= context]
        if not lengths:
            raise PlanError(
                f"sequence_lengths={tuple(self._lengths)} are all longer than model={self._choices.model!r} has positions "
                f"for: name one of {context} or less."
            )
        return {
            (size, length): self._choices.plan(size, length) for length in lengths for size in self._sizes
        }

    def _missing(self) -> list[Plan]:
        return [plan for plan in self._plans.values() if plan not in self._known]

    @guarded
    def _changed(self) -> None:
        with self._lock:
            if self.last_error:  # it remembers what it refused, and its process may be dead
                self._predictor.close()
                self._predictor = Predictor()
            self.last_error = None
            write(self._error, "")
            self._plans = self._wanted()
            self._show()

    @guarded
    def _tick(self) -> None:
        with self._lock:
            missing = self._missing()
            if not missing or self.last_error or self._closed:
                return
            question = Question(missing[0], self._cards[-1].name)
            answer = self._predictor.answer(question)
            if answer is None:
                self._predictor.ask(question)
            else:
                self._take(missing[0], answer)
                self._show()

    def _take(self, plan: Plan, answer: Prediction | Refusal) -> None:
        if isinstance(answer, Refusal):
            self.report(answer.sentence)
        else:
            self._known[plan] = answer.run.peak_reserved

    def _show(self) -> None:
        missing = len(self._missing())
        self._chart.draw(self.figure, settled=not missing)
        done = f"{len(self._plans) - missing} of {len(self._plans)} cells predicted"
        write(self._state, status_html(done if missing else "all cells predicted"))

    def _laid_out(self) -> VBox:
        head = HBox([HTML(text_html("memlab-name", "memlab heat map")), self._state])
        head.add_class("memlab-top")
        self._state.add_class("memlab-state")
        names = Accessibility(names={**self._choices.names, **self._chart.names})
        notes = HTML(text_html("memlab-why", self._says()))
        panel = VBox([HTML(STYLE), head, self._choices.widget, self._error, self._chart.widget, notes, names])
        panel.add_class("memlab-bench")
        return panel

    def _says(self) -> str:
        return (
            f"Predicted: the allocator's peak reserve of two optimizer steps by the kernels of {self._cards[-1].title}. "
            "A line: memory of a card less the CUDA context at its smallest. Left out: workspaces of cuBLAS "
            "and cuDNN. Close to a line, an allocator that empties its cache may still fit."
        )
