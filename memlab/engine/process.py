"""One worker process, from its start to its end."""

import os
import signal
import subprocess
import sys
import sysconfig
import threading
from collections import deque
from pathlib import Path
from typing import Literal

import memlab
from memlab.engine.coalesce import Mailbox
from memlab.engine.protocol import READY, command, run_command
from memlab.events import Event, Failed, Finished, from_json
from memlab.plan import Plan

State = Literal["starting", "idle", "running", "paused", "dead"]

STOP_SECONDS = 5.0
"""How long a run may take to stop before its process is killed."""
CLOSE_SECONDS = 1.0
"""How long an idle process may take to leave before it is killed."""
STDERR_LINES = 50
"""Lines of standard error that are kept for the details of a crash."""


class WorkerProcess:
    """Starts at once; two threads read what it writes, so that its pipes are never full for long."""

    def __init__(self, threads: int | None) -> None:
        self._lock = threading.Lock()
        self._mailbox = Mailbox()
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._ready = self._busy = self._paused = self._dead = False
        self._run_number = 0
        self._killed_by_stop = False
        self._popen = started(command_line(threads))
        self._errors = threading.Thread(target=self._read_errors, daemon=True)
        self._errors.start()
        threading.Thread(target=self._read_events, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def busy(self) -> bool:
        """Whether a run was sent and has not ended."""
        return self._busy

    @property
    def state(self) -> State:
        """What the process does now."""
        if self._dead or (not self._busy and self._popen.poll() is not None):
            return "dead"
        if not self._ready:
            return "starting"
        if not self._busy:
            return "idle"
        return "paused" if self._paused else "running"

    def take(self) -> list[Event]:
        """Return the events since the last call."""
        return self._mailbox.take()

    def run(self, plan: Plan) -> None:
        """Send `plan`."""
        with self._lock:
            self._busy, self._paused = True, False
            self._run_number += 1
        self._send(run_command(plan))

    def pause(self) -> None:
        """Ask the run to wait."""
        self._paused = True
        self._send(command("pause"))

    def resume(self) -> None:
        """Ask the run to go on."""
        self._paused = False
        self._send(command("resume"))

    def stop(self) -> None:
        """Ask the run to end; kill the process where it does not."""
        self._paused = False
        self._send(command("stop"))
        timer = threading.Timer(STOP_SECONDS, self._kill_run, args=(self._run_number,))
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        """End the process, by force if it does not leave by itself."""
        with self._lock:
            self._busy = False  # a run that ends now ends by request
        try:
            self._popen.stdin.close()
        except OSError:
            pass  # it is gone already
        try:
            self._popen.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def _send(self, line: str) -> None:
        try:
            self._popen.stdin.write(line)
            self._popen.stdin.flush()
        except (OSError, ValueError):
            pass  # the process is gone: `_read_events` says so

    def _kill_run(self, number: int) -> None:
        with self._lock:
            if self._busy and self._run_number == number:
                self._killed_by_stop = True
                self._popen.kill()

    def _read_errors(self) -> None:
        with self._popen.stderr as lines:
            self._stderr.extend(lines)

    def _read_events(self) -> None:
        with self._popen.stdout as lines:
            for line in lines:
                if line.strip() == READY:
                    self._ready = True
                else:
                    self._receive(from_json(line))
        code = self._popen.wait()
        self._errors.join(CLOSE_SECONDS)
        self._end(code)

    def _receive(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, (Finished, Failed)):
                self._busy = self._paused = False
            self._mailbox.put(event)

    def _end(self, code: int) -> None:
        with self._lock:
            broke_off, self._busy, self._dead = self._busy, False, True
            if broke_off:
                self._mailbox.put(self._failure(code))

    def _failure(self, code: int) -> Failed:
        if self._killed_by_stop:
            message = (
                f"The run did not stop within {STOP_SECONDS:.0f} s, so its process was killed and what it "
                "measured is lost; press Run to start again."
            )
        elif not self._ready:
            message = (
                f"The worker process could not start ({ending(code)}); run `memlab doctor`, the details "
                "show what it said."
            )
        else:
            message = (
                f"The worker process died ({ending(code)}); press Run to start again, with a smaller "
                "micro_batch_size if memory was short."
            )
        return Failed(kind="crash", message=message, details="".join(self._stderr))


def ending(code: int) -> str:
    """Say how a process ended.

    >>> ending(3)
    'exit code 3'
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def started(command: list[str]) -> "subprocess.Popen[str]":
    """Start a process of ours that is spoken to through its pipes."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=environment(),
        # An interrupt of the kernel goes to its whole process group: not to this one.
        start_new_session=os.name == "posix",
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )


def command_line(threads: int | None) -> list[str]:
    """Return what starts a worker with this interpreter."""
    chosen = [] if threads is None else ["--threads", str(threads)]
    return [sys.executable, "-u", "-m", "memlab.engine.worker", *chosen]


def environment() -> dict[str, str]:
    """Return this process's environment, such that the worker finds this memlab and nothing else.

    Python 3.11 and later then do not import from the notebook's folder, where a learner's own
    `random.py` would take the place of the standard library's.
    """
    root = str(Path(memlab.__file__).parents[1])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root != sysconfig.get_path("purelib"):
        paths = [root, *paths]
    return {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
