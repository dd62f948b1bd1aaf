"""One bench's runs as they go: the worker on one side, the ledger on the other. No widget here."""

import threading
import weakref
from dataclasses import dataclass
from typing import ClassVar

from memlab.engine.client import Worker, WorkerBusy
from memlab.events import Event, Failed, Finished
from memlab.plan import Plan, PlanError
from memlab.run import Run
from memlab.ui.ledger import Ledger
from memlab.ui.records import Record
from memlab.ui.words import end_words, not_finite_words


class BenchError(RuntimeError):
    """Says in one sentence why a run ended without a result, and the way out."""


@dataclass(frozen=True)
class Trouble:
    """What went wrong in a run: a sentence, and a traceback or nothing."""

    sentence: str
    details: str = ""


class Session:
    """Starts runs, takes their events in, and knows how the last one ended."""

    _all: ClassVar[weakref.WeakSet["Session"]] = weakref.WeakSet()
    _turn: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self) -> None:
        self.worker = Worker()
        self.ledger = Ledger()
        self.trouble: Trouble | None = None
        """Of the run that goes on or ended last."""
        self.ending = ""
        """How the last run ended, in words; "" while one goes on."""
        self.ended = threading.Event()
        self.ended.set()
        self._failed: Failed | None = None
        self.closed = False
        """Nothing runs any more."""
        Session._all.add(self)

    def begin(self, plan: Plan) -> None:
        """Send `plan` to the worker; raise WorkerBusy while a run goes on or its end is not taken in."""
        if not self.ended.is_set():
            raise WorkerBusy("A run is going on: press Stop or wait for its end, then press Run.")
        if self.closed:
            raise BenchError("This bench is closed; make a new one with memlab.Bench().")
        with Session._turn:
            self.warm_up()
            self.worker.run(plan)
            self.ended.clear()
        self.ledger.begin(plan)
        self.trouble, self._failed, self.ending = None, None, ""

    def warm_up(self) -> None:
        """Start the worker, and end those that wait for other benches; they come back with a run.

        A cell that is run again leaves its bench behind, and a waiting worker holds hundreds of MiB.
        """
        with Session._turn:
            for other in list(Session._all):
                if other.worker is not self.worker and other.ended.is_set():
                    other.worker.close()
            self.worker.start()

    def take(self) -> bool:
        """Take in what the worker has said since the last call; tell whether there was anything."""
        events = self.worker.events()
        for event in events:
            self._take(event)
        return bool(events)

    def close(self) -> None:
        """End the worker and a run with it."""
        self.closed = True
        self.worker.close()
        if not self.ended.is_set():
            self.trouble = Trouble("The bench was closed while this run went on; make a new Bench.")
        self.ending = "closed: make a new Bench to run again"
        self.ended.set()

    def result(self) -> Run:
        """Return the Run that ended last; raise what it failed with."""
        if self._failed is not None:
            raise (PlanError if self._failed.kind == "plan" else BenchError)(self._failed.message)
        newest = self.ledger.newest
        if newest is None or newest.run is None:
            raise BenchError(self.trouble.sentence if self.trouble else "No run has finished yet.")
        return newest.run

    def _take(self, event: Event) -> None:
        record = self.ledger.newest
        if record is None or self.ended.is_set():
            return  # the rest of a run whose bench was closed
        record.add(event)
        match event:
            case Failed():
                self._failed, self.trouble = event, Trouble(event.message, event.details)
                self._end("failed")
                if not record.losses:  # what was drawn before it stays
                    self.ledger.delete(record)
            case Finished():
                self._end(end_words(record))
            case _:
                self._check_loss(record)

    def _check_loss(self, record: Record) -> None:
        if record.first_bad_step is not None and self.trouble is None:
            self.trouble = Trouble(not_finite_words(record))
            self.worker.stop()

    def _end(self, words: str) -> None:
        self.ending = words
        self.ended.set()
