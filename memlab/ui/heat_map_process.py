"""The kernel's end of the process that predicts for the heat map."""

import json
import os
import subprocess
import sys
import threading
import weakref
from collections import deque
from typing import Any

from memlab.engine.process import CLOSE_SECONDS, STDERR_LINES, ending, environment
from memlab.plan import Plan


class PredictorError(RuntimeError):
    """The process that predicts ended by itself."""


class Predictor:
    """Answers one question at a time; starts with the first."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._answers: deque[dict[str, Any]] = deque()
        self._said: deque[str] = deque(maxlen=STDERR_LINES)
        self._asked: Plan | None = None

    @property
    def busy(self) -> bool:
        """Whether a question waits for its answer to be taken."""
        return self._asked is not None

    def ask(self, plan: Plan, card: str) -> None:
        """Send a question; only where none waits."""
        assert self._asked is None
        if self._process is None:
            self._start()
        self._asked = plan
        try:
            self._process.stdin.write(json.dumps({"plan": plan.to_dict(), "card": card}) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            pass  # it is gone: `take` says so

    def take(self) -> tuple[Plan, dict[str, Any]] | None:
        """Return the plan that was asked about and the answer, once it is there; raise PredictorError."""
        if self._asked is None:
            return None
        if self._answers:
            asked, self._asked = self._asked, None
            return asked, self._answers.popleft()
        if self._process.poll() is not None and not self._reader.is_alive() and not self._answers:
            code, self._process, self._asked = self._process.returncode, None, None
            said = self._said[-1].strip() if self._said else "it said nothing"
            raise PredictorError(
                f"The process that predicts ended ({ending(code)}; {said}): change a setting to start it again."
            )
        return None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._at_exit()
            self._process = self._asked = None

    def _start(self) -> None:
        self._answers.clear()
        self._process = process = subprocess.Popen(
            [sys.executable, "-u", "-m", "memlab.planner.peaks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**environment(), "OMP_NUM_THREADS": "1"},  # shapes alone: threads would only wait
            # An interrupt of the kernel goes to its whole process group: not to this one.
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self._at_exit = weakref.finalize(self, _end, process)
        errors = threading.Thread(target=_keep, args=(process.stderr, self._said), daemon=True)
        self._reader = threading.Thread(
            target=_read, args=(process.stdout, self._answers, errors), daemon=True
        )
        errors.start()
        self._reader.start()


def _read(lines: Any, answers: deque[dict[str, Any]], errors: threading.Thread) -> None:
    with lines:
        answers.extend(map(json.loads, lines))
    errors.join(CLOSE_SECONDS)


def _keep(lines: Any, said: deque[str]) -> None:
    with lines:
        said.extend(lines)


def _end(process: "subprocess.Popen[str]") -> None:
    try:
        process.stdin.close()
    except OSError:
        pass  # it is gone already
    process.kill()  # it holds nothing that could be lost
    process.wait()
