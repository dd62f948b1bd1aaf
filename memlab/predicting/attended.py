"""A long prediction is seen and can be ended: between operations, never within one nor within backward.

There the exception of an interrupt would reach torch's C++, which aborts the process; within an import it would
leave half a module behind.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from memlab.interrupts import kept
from memlab.late_bar import LateBar
from memlab.predicting.dataless import DatalessMode

QUIET_SECONDS = 10.0
"""What takes longer says for how long it has gone on."""
_EVERY = 0.5
_TEXT = "{desc} for {elapsed}; Ctrl-C ends it (in a notebook: interrupt the kernel)"


@contextmanager
def attended(mode: DatalessMode, doing: str, *, progress: bool) -> Iterator[None]:
    """Let an interrupt end what goes on within at `mode`'s next operation that can bear it.

    With `progress`, a bar on standard error says `doing` and for how long, after ten seconds. In another
    thread than the main one, which hears no interrupts, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask() -> None:
        mode.wanted = True

    with LateBar(QUIET_SECONDS, bar_format=_TEXT, desc=doing) as bar, kept(ask) as interrupts:

        def attend() -> None:
            bar.draw()
            if _can_bear():
                interrupts.pass_on()
            else:
                mode.wanted = interrupts.waiting

        mode.attend = attend
        timer = _Timer(mode) if progress else None
        try:
            yield
        finally:
            mode.attend = None
            if timer is not None:
                timer.ended.set()


def _can_bear() -> bool:
    """Say whether an exception may leave this operation: not backward, and no import that runs operations."""
    if torch._C._current_graph_task_id() != -1:
        return False
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return False
        frame = frame.f_back
    return True


class _Timer:
    """Asks for the mode's attention from time to time."""

    def __init__(self, mode: DatalessMode) -> None:
        self.ended = threading.Event()
        threading.Thread(target=self._run, args=(mode,), name="memlab-progress", daemon=True).start()

    def _run(self, mode: DatalessMode) -> None:
        pause = QUIET_SECONDS
        while not self.ended.wait(pause):
            mode.wanted, pause = True, _EVERY
