"""A long prediction is seen and can be ended: between operations, never within one.

In the middle of an operation without data the exception of an interrupt would reach torch's C++, which aborts
the process.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from memlab.late_bar import LateBar
from memlab.predicting.dataless import DatalessMode

QUIET_SECONDS = 10.0
"""What takes longer says for how long it has gone on."""
_EVERY = 0.5
_TEXT = "{desc} for {elapsed}; Ctrl-C ends it (in a notebook: interrupt the kernel)"


@contextmanager
def attended(mode: DatalessMode, doing: str, *, progress: bool) -> Iterator[None]:
    """Let an interrupt end what goes on within at `mode`'s next operation; the second one at once.

    With `progress`, a bar on standard error says `doing` and for how long, after ten seconds. In another
    thread than the main one, which hears no interrupts, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with LateBar(QUIET_SECONDS, bar_format=_TEXT, desc=doing) as bar, _interrupts(mode) as interrupts:
        timer = _Timer(mode) if progress else None

        def attend() -> None:
            interrupts.pass_on()
            bar.draw()

        mode.attend = attend
        try:
            yield
        finally:
            mode.attend = None
            if timer is not None:
                timer.ended.set()
    interrupts.pass_on()  # one that came after the last operation


class _Timer:
    """Asks for the mode's attention from time to time."""

    def __init__(self, mode: DatalessMode) -> None:
        self.ended = threading.Event()
        threading.Thread(target=self._run, args=(mode,), name="memlab-progress", daemon=True).start()

    def _run(self, mode: DatalessMode) -> None:
        pause = QUIET_SECONDS
        while not self.ended.wait(pause):
            mode.wanted, pause = True, _EVERY


class _Interrupts:
    """Keeps an interrupt until it can be passed on to whom it was for."""

    def __init__(self, mode: DatalessMode, before: Any) -> None:
        self._mode, self._before = mode, before
        self._came: tuple[int, FrameType | None] | None = None

    def come(self, number: int, frame: FrameType | None) -> None:
        """Keep an interrupt; pass it on where one waits already."""
        if self._came is not None:
            self._before(number, frame)
        self._came = number, frame
        self._mode.wanted = True

    def pass_on(self) -> None:
        """Call whoever hears interrupts else: Python raises KeyboardInterrupt."""
        came, self._came = self._came, None
        if came is not None:
            self._before(*came)


@contextmanager
def _interrupts(mode: DatalessMode) -> Iterator[_Interrupts]:
    before = signal.getsignal(signal.SIGINT)
    interrupts = _Interrupts(mode, before)
    if not callable(before):  # ignored, or none of Python's
        yield interrupts
        return
    signal.signal(signal.SIGINT, interrupts.come)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
