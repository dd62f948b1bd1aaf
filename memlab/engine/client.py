"""The notebook's end of the worker process. No torch, no event loop, nothing that blocks."""

import weakref

from memlab.engine.process import State, WorkerProcess
from memlab.events import Event
from memlab.plan import Plan


class WorkerBusy(RuntimeError):
    """A run is going on; a worker trains one plan at a time."""


class Worker:
    """Runs plans in a process of its own and collects their events.

    A crash of the process ends its run with one Failed event; the next `run` starts a new process.
    Closed at the latest when the interpreter ends or the Worker is forgotten.
    """

    def __init__(self, *, threads: int | None = None) -> None:
        """Take `threads` for torch's threads; None: all cores but one."""
        self._threads = threads
        self._process: WorkerProcess | None = None
        self._old_events: list[Event] = []

    def start(self) -> None:
        """Start the process, unless one lives; return at once while it warms up."""
        if self.state != "dead":
            return
        if self._process is not None:
            self._old_events += self._process.take()
            self.close()  # frees its pipes
        self._process = WorkerProcess(self._threads)
        self._at_exit = weakref.finalize(self, self._process.close)

    def run(self, plan: Plan) -> None:
        """Send `plan`; it begins once the process is warm. Raises WorkerBusy while a run goes on."""
        if self.busy:
            raise WorkerBusy(
                "A run is going on, and the worker trains one plan at a time; press Stop or wait for its end."
            )
        self.start()
        self._live.run(plan)

    def pause(self) -> None:
        """Make the run wait at the next micro-step."""
        if self.busy:
            self._live.pause()

    def resume(self) -> None:
        """Let a paused run go on."""
        if self.busy:
            self._live.resume()

    def stop(self) -> None:
        """End the run; Finished(stopped=True) follows, or Failed where the process had to be killed."""
        if self.busy:
            self._live.stop()

    def events(self) -> list[Event]:
        """Return the events since the last call; of each run, only the newest StepMemory."""
        events, self._old_events = self._old_events, []
        return events + (self._process.take() if self._process is not None else [])

    def close(self) -> None:
        """End the process, and a run with it."""
        if self._process is not None and self._at_exit.detach():
            self._process.close()

    @property
    def busy(self) -> bool:
        """Whether a run was sent and has not ended."""
        return self._process is not None and self._process.busy

    @property
    def state(self) -> State:
        """What the process does; "dead" also before the first start."""
        return self._process.state if self._process is not None else "dead"

    @property
    def pid(self) -> int | None:
        """Number of the process, while it lives."""
        return self._process.pid if self._process is not None and self.state != "dead" else None

    @property
    def _live(self) -> WorkerProcess:
        assert self._process is not None
        return self._process
