"""A thread that calls a function about ten times a second."""

import threading
import weakref
from collections.abc import Callable

SECONDS = 0.1


class Pump:
    """Runs from `start` until `close`, or until the object of the method `tick` is forgotten."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = weakref.WeakMethod(tick)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it goes on already."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=_turn, args=(self._tick, self._ended), name="memlab bench", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """End the thread; wait for it, unless it is the caller itself."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2)


def _turn(tick: weakref.WeakMethod, ended: threading.Event) -> None:
    while not ended.wait(SECONDS):
        call = tick()
        if call is None:
            return
        call()
        del call  # else the thread itself would keep the bench alive
