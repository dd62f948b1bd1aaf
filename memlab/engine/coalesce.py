"""Events that wait for a slow reader: every result is kept, of the curves only the newest."""

import threading
from dataclasses import replace

from memlab.events import Event, StepCommunication, StepFinished, StepMemory


def superseded(older: StepMemory, newer: StepMemory) -> StepMemory:
    """Return `newer`, with the peaks that would be lost with `older`."""
    lost = (*older.earlier_peaks, (older.step, older.peak["total"]))
    return replace(newer, earlier_peaks=lost + newer.earlier_peaks)


class Mailbox:
    """Events from one thread to another; putting never waits, and memory curves do not pile up."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: list[Event] = []
        self._curve: int | None = None
        """Where in `_events` the StepMemory is that a newer one replaces."""

    def put(self, event: Event) -> None:
        """Add `event`; a StepMemory takes the place of one that still waits."""
        with self._changed:
            if isinstance(event, StepMemory):
                if self._curve is not None:
                    event = superseded(self._events.pop(self._curve), event)
                self._curve = len(self._events)
            elif not isinstance(event, (StepFinished, StepCommunication)):
                self._curve = None  # a curve never crosses the border between two runs
            self._events.append(event)
            self._changed.notify()

    def take(self) -> list[Event]:
        """Return what has come since the last call, at once."""
        with self._changed:
            events, self._events, self._curve = self._events, [], None
            return events

    def wait(self) -> list[Event]:
        """Return what has come; wait until there is something."""
        with self._changed:
            self._changed.wait_for(lambda: self._events)
        return self.take()
