"""Compute in a thread of its own, so that Ctrl-C is heard at once and cannot strike inside torch."""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")
NAME = "memlab-compute"


def computed_apart(compute: Callable[[], Result], meanwhile: Callable[[], None] = lambda: None) -> Result:
    """Return what `compute` returns, or raise what it raises; Ctrl-C is raised here, not in it.

    `meanwhile` is called here every tenth of a second: what it draws, nothing left behind draws over.

    Only the main thread hears Ctrl-C. In the middle of an operation without data its exception would reach
    torch's C++, which aborts the process.
    """
    outcome: dict[str, Any] = {}
    ended = threading.Event()

    def work() -> None:
        try:
            outcome["result"] = compute()
        except BaseException as error:
            outcome["error"] = error
        ended.set()

    threading.Thread(target=work, name=NAME, daemon=True).start()
    while not ended.wait(0.1):
        meanwhile()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


def leave_if_computing(status: int) -> None:
    """End the process at once if a computation is left behind: Python's own way out would abort inside it."""
    if any(thread.name == NAME for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
