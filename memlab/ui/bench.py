"""The bench: settings on the left, a training run in another process, live figures on the right."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from memlab.engine.client import Worker
from memlab.events import Event, Failed, Finished
from memlab.plan import Plan, PlanError
from memlab.run import Run
from memlab.ui.charts import choose_backend
from memlab.ui.controls import Controls
from memlab.ui.drawing import draw
from memlab.ui.files import save_run
from memlab.ui.guard import guarded
from memlab.ui.html import table_html
from memlab.ui.ledger import Ledger
from memlab.ui.panel import Panel
from memlab.ui.pump import Pump
from memlab.ui.records import Record
from memlab.ui.run_figures import peaks_table
from memlab.ui.words import device_words, end_words, not_finite_words, progress_words


class BenchError(RuntimeError):
    """Says in one sentence why a run ended without a result, and the way out."""


class Bench:
    """Show it as the last line of a cell; or run it without widgets, `bench.run(steps=3, block=True)`."""

    def __init__(self, **plan_fields: Any) -> None:
        """Take the settings to start from, named like the Plan's fields; raise PlanError where impossible."""
        self._lock = threading.RLock()
        self._controls = Controls(**plan_fields)
        self._panel = Panel(self._controls, choose_backend())
        self._ledger = Ledger()
        self._worker = Worker()
        self._failed: Failed | None = None
        self._ended = threading.Event()
        self._ended.set()
        self._message = ""
        self.last_error: str | None = None
        """The sentence that the red line shows; None where all went well."""
        self._pump = Pump(self._tick)
        self._wire()
        self._refresh()

    # what a learner's code uses ---------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan that is set now; raises PlanError while the settings are impossible."""
        return self._controls.plan()

    @property
    def runs(self) -> list[Run]:
        """The finished runs, the newest last; those neither pinned nor newest are without their trace."""
        return self._ledger.runs

    def run(self, *, block: bool = False, **plan_fields: Any) -> Run | None:
        """Start a run in the worker, with `plan_fields` instead of what is set, for this run alone.

        With `block`, wait and return its Run; raise BenchError where it fails; an interrupt stops it.
        """
        plan = replace(self.plan, **plan_fields) if plan_fields else self.plan
        self._begin(plan)
        if not block:
            return None
        try:
            while not self._ended.wait(0.1):
                pass
        except KeyboardInterrupt:
            self._worker.stop()
            self._ended.wait()
            raise
        return self._result()

    def pin(self, name: str | None = None, *, run: str | None = None) -> None:
        """Keep the curves and the row of a run: that with the letter or name `run`, else the newest."""
        with self._lock:
            record = self._ledger.find(run)
            record.pinned, record.name = True, name or record.name
            self._redraw()

    def delete(self, run: str) -> None:
        """Forget the run with this letter or name."""
        with self._lock:
            self._ledger.delete(self._ledger.find(run))
            self._redraw()

    def save(self, path: str | Path | None = None, *, run: str | None = None) -> Path:
        """Write a run (default: the newest) as JSON; return where. Without `path`, a new file here."""
        record = self._ledger.find(run)
        assert record.run is not None
        return save_run(record.run, record.name or record.letter, path)

    def close(self) -> None:
        """End the worker process and the thread; what was measured stays readable."""
        self._pump.close()
        self._worker.close()
        self._ended.set()
        self._say("closed: make a new Bench to run again")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return the live panel, and what notebooks without widgets show instead."""
        self._worker.start()
        self._pump.start()
        view = {"version_major": 2, "version_minor": 0, "model_id": self._panel.widget.model_id}
        return {
            "application/vnd.jupyter.widget-view+json": view,
            "text/plain": "memlab bench: run this cell to use it",
            "text/html": table_html(
                peaks_table(self._ledger.shown), "No run yet: run this cell to use the bench."
            ),
        }

    # what happens ----------------------------------------------------------------------------

    def report(self, sentence: str, details: str = "") -> None:
        """Show one red line, and keep it as `last_error`."""
        self.last_error = sentence
        self._panel.say_error(sentence, details)

    def _wire(self) -> None:
        panel, shelf = self._panel, self._panel.shelf
        self._controls.watch(self._settings_changed)
        panel.run_button.on_click(self._run_pressed)
        panel.pause_button.on_click(self._pause_pressed)
        panel.stop_button.on_click(self._stop_pressed)
        shelf.pin_button.on_click(self._pin_pressed)
        shelf.delete_button.on_click(self._delete_pressed)
        shelf.save_button.on_click(self._save_pressed)
        shelf.chosen.observe(self._chosen, "value")
        shelf.name.observe(self._named, "value")

    def _begin(self, plan: Plan) -> None:
        with self._lock:
            self._worker.run(plan)  # first: it refuses a second run
            self._ledger.begin(plan)
            self._failed, self.last_error = None, None
            self._ended.clear()
            self._panel.say_error("")
            self._panel.say_notes([])
            self._say("")
        self._pump.start()

    def _result(self) -> Run:
        if self._failed is not None:
            raise (PlanError if self._failed.kind == "plan" else BenchError)(self._failed.message)
        newest = self._ledger.newest
        if newest is None or newest.run is None:
            raise BenchError(f"The run gave no result: {self.last_error or 'the bench was closed'}.")
        return newest.run

    @guarded
    def _tick(self) -> None:
        with self._lock:
            events = self._worker.events()
            for event in events:
                self._take(event)
            if events:
                draw(self._panel, self._ledger, in_full=self._ended.is_set())
            self._refresh()

    def _take(self, event: Event) -> None:
        record = self._ledger.newest
        assert record is not None
        record.add(event)
        match event:
            case Failed():
                self._failed = event
                self.report(event.message, event.details)
                self._end("failed")
            case Finished():
                self._end(end_words(record))
                self._panel.shelf.offer(self._ledger.shown, record.letter)
            case _:
                self._panel.say_notes(record.notices)
                self._check_loss(record)

    def _check_loss(self, record: Record) -> None:
        if record.first_bad_step is not None and self.last_error is None:
            self.report(not_finite_words(record))
            self._worker.stop()

    def _end(self, words: str) -> None:
        self._say(words)
        self._ended.set()

    def _say(self, message: str) -> None:
        self._message = message
        self._refresh()

    def _redraw(self) -> None:
        draw(self._panel, self._ledger, in_full=True)
        self._panel.shelf.offer(self._ledger.shown)

    def _refresh(self) -> None:
        """Fit state line and buttons to what the worker does."""
        busy, state, problem = self._worker.busy, self._worker.state, self._controls.problem
        if busy:
            words = "warming up, then running" if state == "starting" else state
        else:
            words = self._message or ("ready" if state != "starting" else "warming up")
        record = self._ledger.newest
        device = device_words(None if problem else self.plan, record)
        self._panel.say_state(device, words, progress_words(record))
        why = "Run waits until the setting marked in red is possible." if problem and not busy else ""
        paused = state == "paused"
        self._panel.allow(run=not (busy or problem), pause=busy and not paused, resume=paused, why=why)

    # what is pressed ---------------------------------------------------------------------------

    @guarded
    def _settings_changed(self) -> None:
        with self._lock:
            self._refresh()

    @guarded
    def _run_pressed(self, _button: object) -> None:
        self._begin(self.plan)

    @guarded
    def _pause_pressed(self, _button: object) -> None:
        if self._worker.state == "paused":
            self._worker.resume()
        else:
            self._worker.pause()
        self._refresh()

    @guarded
    def _stop_pressed(self, _button: object) -> None:
        self._worker.stop()

    @guarded
    def _pin_pressed(self, _button: object) -> None:
        with self._lock:
            record = self._ledger.find(self._panel.shelf.chosen.value)
            record.pinned = not record.pinned
            self._redraw()

    @guarded
    def _delete_pressed(self, _button: object) -> None:
        self.delete(self._panel.shelf.chosen.value)

    @guarded
    def _save_pressed(self, _button: object) -> None:
        self._say(f"saved {self.save(run=self._panel.shelf.chosen.value)}")

    @guarded
    def _chosen(self, _change: object) -> None:
        with self._lock:
            self._panel.shelf.offer(self._ledger.shown)

    @guarded
    def _named(self, change: dict[str, Any]) -> None:
        with self._lock:
            letter = self._panel.shelf.chosen.value
            if letter and self._ledger.find(letter).name != change["new"]:
                self._ledger.find(letter).name = change["new"].strip()
                self._redraw()
