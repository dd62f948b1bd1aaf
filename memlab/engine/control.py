"""Pause and Stop for a run that goes on in another thread."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(Exception):
    """Unwinds a run that was asked to stop."""


class Control:
    """Pause, resume and stop a run; the run calls `check` wherever it can wait or end."""

    def __init__(self) -> None:
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self.stopping = False
        self.interruptible = False
        """Whether Stopped may be raised right now, in the middle of a step."""
        self.ended = threading.Event()
        self.paused_seconds = 0.0
        """Time spent waiting, since the start."""

    def pause(self) -> None:
        """Make the next `check` wait."""
        if not self.stopping:
            self._may_go_on.clear()

    def resume(self) -> None:
        """Let a waiting `check` go on."""
        self._may_go_on.set()

    def stop(self) -> None:
        """Make the next `check` raise Stopped, also where one waits now."""
        self.stopping = True
        self._may_go_on.set()

    def check(self) -> None:
        """Wait while paused; raise Stopped once the run is to end."""
        self._wait_while_paused()
        if self.stopping:
            raise Stopped

    def reach(self, place: str) -> None:
        """Pass `place` inside of a step, which is one to wait or to end at."""
        self.check()

    def step_ended(self) -> None:
        """Pass the end of a step."""
        self.check()

    def _wait_while_paused(self) -> None:
        if self.paused:
            began = time.perf_counter()
            self._may_go_on.wait()
            self.paused_seconds += time.perf_counter() - began

    @property
    def paused(self) -> bool:
        """Whether the run is to wait."""
        return not self._may_go_on.is_set()

    @contextmanager
    def training(self) -> Iterator[None]:
        """Mark what may be broken off anywhere: the inside of a step."""
        self.interruptible = True
        try:
            yield
        finally:
            self.interruptible = False
