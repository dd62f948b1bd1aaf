"""The bench: settings on the left, a training run in another process, live figures on the right."""

import threading
from pathlib import Path
from typing import Any

from memlab.engine.client import WorkerBusy
from memlab.engine.predictor import Question
from memlab.plan import Plan
from memlab.run import Run
from memlab.ui.charts import backend_and_complaint
from memlab.ui.controls import Controls
from memlab.ui.drawing import draw, step_figure
from memlab.ui.files import save_run
from memlab.ui.forecast import say_forecast
from memlab.ui.foresight import Foresight
from memlab.ui.guard import guarded
from memlab.ui.html import table_html
from memlab.ui.panel import Panel
from memlab.ui.pump import Pump
from memlab.ui.run_figures import peaks_table, run_peaks_figure
from memlab.ui.session import Session, Trouble
from memlab.ui.words import device_words, progress_words, state_words


class Bench:
    """Show it as the last line of a cell; or run it without widgets, `bench.run(steps=3, block=True)`."""

    def __init__(self, **plan_fields: Any) -> None:
        """Take the settings to start from, named like the Plan's fields; raise PlanError where impossible."""
        self._lock = threading.RLock()
        self._controls = Controls(**plan_fields)
        backend, complaint = backend_and_complaint()
        self._panel = Panel(self._controls, backend)
        self._session = Session()
        self._foresight = Foresight()
        self._foresight.wish(self._question)
        self._run_asked = self._behind = False
        self._shown_trouble: Trouble | None = None
        self._said = ""
        self.last_error: str | None = None
        """The sentence of the red line; None where all went well."""
        self._pump = Pump(self._tick)
        self._wire()
        self._refresh()
        if complaint:
            self.report(complaint)

    # what a learner's code uses ---------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan that is set now; raises PlanError while the settings are impossible."""
        return self._controls.plan()

    @property
    def runs(self) -> list[Run]:
        """The finished runs, the newest last; those neither pinned nor newest are without their trace."""
        return self._session.ledger.runs

    def run(self, *, block: bool = False, **plan_fields: Any) -> Run | None:
        """Start a run in the worker, with `plan_fields` instead of what is set, for this run alone.

        With `block`, wait and return its Run; raise BenchError where it fails; an interrupt stops it.
        """
        self._begin(self._controls.plan(**plan_fields))
        if not block:
            return None
        try:
            while not self._session.ended.wait(0.1):
                pass
        except KeyboardInterrupt:
            self._session.worker.stop()
            self._session.ended.wait()
            raise
        with self._lock:  # the tick that took the end in also shows it
            return self._session.result()

    def pin(self, name: str | None = None, *, run: str | None = None) -> None:
        """Keep the curves and the row of a run: that with the letter or name `run`, else the newest."""
        with self._lock:
            record = self._session.ledger.find(run)
            record.pinned, record.name = True, name or record.name
            self._redraw()

    def delete(self, run: str) -> None:
        """Forget the run with this letter or name."""
        with self._lock:
            self._session.ledger.delete(self._session.ledger.find(run))
            self._redraw()

    def save(self, path: str | Path | None = None, *, run: str | None = None) -> Path:
        """Write a run (default: the newest) as JSON; return where. Without `path`, a new file here."""
        record = self._session.ledger.find(run)
        assert record.run is not None
        return save_run(record.run, record.name or record.letter, path)

    def close(self) -> None:
        """End the worker process and the thread; what was measured stays readable."""
        self._pump.close()
        self._session.close()
        self._foresight.close()
        self._refresh()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return the live panel, and what notebooks without widgets show instead."""
        if not self._session.closed:
            with self._lock:
                self._show_foresight(self._foresight.begin(), runs_were_told=False)
            self._session.warm_up()
            self._pump.start()
        view = {"version_major": 2, "version_minor": 0, "model_id": self._panel.widget.model_id}
        table = peaks_table(self._session.ledger.shown)
        return {
            "application/vnd.jupyter.widget-view+json": view,
            "text/plain": "memlab bench: run this cell to use it",
            "text/html": table_html(table, "No run yet: run this cell to use the bench."),
        }

    # what happens ----------------------------------------------------------------------------

    def report(self, sentence: str, details: str = "") -> None:
        """Show one red line, and keep it as `last_error`."""
        self.last_error = sentence
        self._panel.say_error(sentence, details)

    def _forgive(self) -> None:
        """Take the red line back: it spoke of what was set before."""
        if self.last_error is not None:
            self.last_error = None
            self._panel.say_error("")

    def _begin(self, plan: Plan) -> None:
        with self._lock:
            self._session.begin(plan)
            self._foresight.expect(plan)
            self._shown_trouble, self._said = None, ""
            self._forgive()
            self._panel.say_notes([])
            self._refresh()
        self._pump.start()

    @guarded
    def _tick(self) -> None:
        with self._lock:
            if self._run_asked:
                self._run_asked = False
                self._begin(self.plan)
            going = not self._session.ended.is_set()
            if self._session.take() or self._behind:
                self._show_news(ended=going and self._session.ended.is_set())
            self._show_foresight(self._foresight.take(), self._foresight.tell(self._session.ledger))
            self._refresh()

    def _show_news(self, *, ended: bool) -> None:
        session, newest = self._session, self._session.ledger.newest
        self._behind = draw(self._panel, session.ledger, self._foresight, in_full=ended)
        if newest is not None:
            self._panel.say_notes(newest.notices)
        if session.trouble is not None and session.trouble is not self._shown_trouble:
            self._shown_trouble = session.trouble
            self.report(session.trouble.sentence, session.trouble.details)
        if ended and newest is not None:
            self._panel.shelf.offer(session.ledger.shown, newest.letter)

    def _show_foresight(self, ghost_is_new: bool, runs_were_told: bool) -> None:
        panel, foresight, ledger = self._panel, self._foresight, self._session.ledger
        if ghost_is_new and foresight.device:
            self._controls.name_device(foresight.device)
        if ghost_is_new or runs_were_told:
            panel.memory.draw(step_figure(ledger, foresight))
        if runs_were_told:
            panel.peaks.draw(run_peaks_figure(ledger.shown))

    def _redraw(self) -> None:
        self._said = ""
        draw(self._panel, self._session.ledger, self._foresight, in_full=True)
        self._panel.shelf.offer(self._session.ledger.shown)

    def _refresh(self) -> None:
        """Fit state line and buttons to what the worker does."""
        session, problem = self._session, self._controls.problem
        going, state = not session.ended.is_set(), session.worker.state
        record = session.ledger.newest
        words = state_words(going, state, self._said or session.ending)
        device = device_words(None if problem else self.plan, record)
        of_an_earlier_run = session.trouble is not None and record is not None and record.run is not None
        self._panel.say_state(device, words, "" if of_an_earlier_run else progress_words(record))
        say_forecast(self._panel, self._foresight, self._controls.card)
        why = "Run waits until the setting marked in red is possible." if problem and not going else ""
        paused = going and state == "paused"
        self._panel.allow(run=not (going or problem), pause=going and not paused, resume=paused, why=why)

    # what is pressed ---------------------------------------------------------------------------

    def _wire(self) -> None:
        panel, shelf = self._panel, self._panel.shelf
        self._controls.watch(self._settings_changed)
        panel.run_button.on_click(self._run_pressed)
        panel.pause_button.on_click(self._pause_pressed)
        panel.stop_button.on_click(self._stop_pressed)
        panel.cancel_button.on_click(self._cancel_pressed)
        shelf.pin_button.on_click(self._pin_pressed)
        shelf.delete_button.on_click(self._delete_pressed)
        shelf.save_button.on_click(self._save_pressed)
        shelf.chosen.observe(self._chosen, "value")
        shelf.name.observe(self._named, "value")

    @property
    def _question(self) -> Question:
        card = self._controls.card
        return Question(self.plan, None if card is None else card.name)

    @guarded
    def _settings_changed(self) -> None:
        with self._lock:
            self._forgive()
            if not self._controls.problem:
                self._show_foresight(self._foresight.wish(self._question), runs_were_told=False)
            self._refresh()

    @guarded
    def _cancel_pressed(self, _button: object) -> None:
        with self._lock:
            self._foresight.cancel()
            self._refresh()

    @guarded
    def _run_pressed(self, _button: object) -> None:
        with self._lock:
            if self._run_asked or not self._session.ended.is_set():
                raise WorkerBusy("A run is going on: press Stop or wait for its end, then press Run.")
            # Begun by the next tick: JupyterLab's first messages may overtake each other on their way
            # into a subshell, and a setting that was turned just before counts.
            self._run_asked = True
        self._pump.start()

    @guarded
    def _pause_pressed(self, _button: object) -> None:
        worker = self._session.worker
        worker.resume() if worker.state == "paused" else worker.pause()
        with self._lock:
            self._refresh()

    @guarded
    def _stop_pressed(self, _button: object) -> None:
        self._session.worker.stop()

    @guarded
    def _pin_pressed(self, _button: object) -> None:
        with self._lock:
            record = self._session.ledger.find(self._panel.shelf.chosen.value)
            record.pinned = not record.pinned
            self._redraw()

    @guarded
    def _delete_pressed(self, _button: object) -> None:
        self.delete(self._panel.shelf.chosen.value)

    @guarded
    def _save_pressed(self, _button: object) -> None:
        self._said = f"saved {self.save(run=self._panel.shelf.chosen.value)}"
        with self._lock:
            self._refresh()

    @guarded
    def _chosen(self, _change: object) -> None:
        with self._lock:
            self._panel.shelf.offer(self._session.ledger.shown)

    @guarded
    def _named(self, change: dict[str, Any]) -> None:
        with self._lock:
            letter = self._panel.shelf.chosen.value
            if letter and self._session.ledger.find(letter).name != change["new"]:
                self._session.ledger.find(letter).name = change["new"].strip()
                self._redraw()
