"""Interrupts that wait until they can be borne: an import that is broken off leaves a module that no one can use."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupts:
    """Keeps an interrupt until `pass_on`; `came` hears of it at once."""

    def __init__(self, came: Callable[[], None]) -> None:
        self._before: Any = None
        self._came: tuple[int, FrameType | None] | None = None
        self._tell = came

    def keep(self, before: Any) -> None:
        """Take interrupts in the place of `before`."""
        self._before = before
        signal.signal(signal.SIGINT, self._come)

    def _come(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame
        self._tell()

    @property
    def waiting(self) -> bool:
        """Whether one came and was not passed on."""
        return self._came is not None

    def pass_on(self) -> None:
        """Call whoever hears interrupts else, if one came: Python raises KeyboardInterrupt."""
        came, self._came = self._came, None
        if came is not None:
            self._before(*came)


@contextmanager
def kept(came: Callable[[], None] = lambda: None) -> Iterator[Interrupts]:
    """Keep interrupts within, and pass one on at the end at the latest.

    Those that are ignored, or none of Python's, are left alone; so are other threads than the main one, which
    hear none.
    """
    interrupts = Interrupts(came)
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield interrupts
        return
    interrupts.keep(before)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
    interrupts.pass_on()
