"""Several ranks on this machine: start them by torchrun, pass on what they say, leave no process behind."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from memlab.device import resolve_device
from memlab.engine import torchrun, verdict
from memlab.engine.control import Control
from memlab.engine.meeting import Meeting, import_folder
from memlab.engine.preflight import why_ranks_cannot_fit
from memlab.events import Event, Failed, Finished, StepCommunication, from_json
from memlab.plan import Plan, PlanError
from memlab.training.ranks import check_machine
from memlab.workload import Workload

LOOKS_APART = 0.02
"""Seconds between two looks at what the ranks have written."""
LAST_WORDS = 1.0
"""Seconds in which other ranks and torchrun may still say what they know, after one has failed."""
STOP_SECONDS = 3.0
"""How long ranks may take to end the step in which they are asked to stop."""


def launched(plan: Plan, workload: Workload | None, control: Control) -> Iterator[Event]:
    """Train `plan` on ranks of its own and yield their events: rank 0's, and every rank's StepCommunication.

    The last event is Finished, or Failed with one line that names the rank. Raises PlanError where
    this machine has too few GPUs or too little memory for so many processes, or `workload` cannot travel
    to another process.
    """
    device = resolve_device(plan.device)
    check_machine(plan, device, plan.world_size)
    if refusal := why_ranks_cannot_fit(plan, device):
        raise PlanError(refusal)
    with tempfile.TemporaryDirectory(prefix="memlab-", ignore_cleanup_errors=True) as folder:
        meeting = Meeting(Path(folder))
        meeting.prepare(plan, workload)
        with _started(meeting, plan.world_size, import_folder(workload)) as process:
            with closing(Launch(meeting, plan.world_size, process, control)) as launch:
                yield from launch.events()


class Launch:
    """Ranks that run, seen from the process that started them."""

    def __init__(
        self, meeting: Meeting, world_size: int, process: "subprocess.Popen[bytes]", control: Control
    ) -> None:
        self._meeting, self._world_size = meeting, world_size
        self._process, self._control = process, control
        self._readers: dict[int, TextIO] = {}
        self._unread: dict[int, str] = {}
        self._failed: dict[int, Failed] = {}
        self._watch = verdict.Watch()
        self._said = ""
        self._stop_by = float("inf")

    def events(self) -> Iterator[Event]:
        """Yield what the ranks say until the run has ended."""
        while True:
            ended = self._process.poll() is not None  # asked before reading: nothing is written after the end
            finished = None
            for event in self._read():
                if isinstance(event, Finished):
                    # Held back: the other ranks wrote of their last step before it, and are read after it.
                    finished = event
                else:
                    yield event
            if finished is not None:
                yield finished
                return
            if self._failed or ended:
                yield self._verdict()
                return
            if failed := self._overdue():
                yield failed
                return
            self._pass_on_commands()
            time.sleep(LOOKS_APART)

    def close(self) -> None:
        """Let go of what the ranks wrote."""
        for reader in self._readers.values():
            reader.close()

    def _read(self) -> Iterator[Event]:
        for rank in range(self._world_size):
            for event in self._lines(rank):
                if isinstance(event, Failed):
                    self._failed.setdefault(rank, event)
                elif rank == 0 or isinstance(event, StepCommunication):
                    yield event

    def _lines(self, rank: int) -> Iterator[Event]:
        if rank not in self._readers:
            with suppress(FileNotFoundError):
                self._readers[rank] = self._meeting.events_file(rank).open(encoding="utf-8")
                self._unread[rank] = ""
        if rank in self._readers:
            *lines, self._unread[rank] = (self._unread[rank] + self._readers[rank].read()).split("\n")
            yield from map(from_json, lines)

    def _pass_on_commands(self) -> None:
        said = "stop" if self._control.stopping else "pause" if self._control.paused else "resume"
        if said != (self._said or "resume"):
            self._meeting.say(said)
            self._said = said

    def _overdue(self) -> Failed | None:
        beats = [self._meeting.beat(rank) for rank in range(self._world_size)]
        if self._said == "stop" and all(beat is not None and beat["progress"] for beat in beats):
            # Ranks that still start end after their first step.
            self._stop_by = min(self._stop_by, time.monotonic() + STOP_SECONDS)
        if time.monotonic() > self._stop_by:
            return Failed(
                kind="crash",
                message=f"The {self._world_size} ranks did not end their step within {STOP_SECONDS:.0f} s of Stop, so "
                "they were killed and what they measured is lost.",
            )
        behind, seconds = self._watch.hanging(beats)
        return verdict.hung(behind, seconds, beats, self._world_size) if behind else None

    def _verdict(self) -> Failed:
        """Wait for what the others have to say, and name who began."""
        deadline = time.monotonic() + LAST_WORDS
        while time.monotonic() < deadline and self._process.poll() is None:
            time.sleep(LOOKS_APART)
            list(self._read())
        list(self._read())
        report = (self._meeting.folder / "torchrun.log").read_text(encoding="utf-8", errors="replace")
        return verdict.broke_off(self._failed, report, self._world_size, self._process.poll())


@contextmanager
def _started(
    meeting: Meeting, world_size: int, import_from: list[str]
) -> Iterator["subprocess.Popen[bytes]"]:
    with (meeting.folder / "torchrun.log").open("wb") as log:
        process = subprocess.Popen(
            torchrun.on_this_machine(meeting.folder, world_size),
            stdin=subprocess.PIPE,  # its end tells the ranks that this process is gone
            stdout=log,
            stderr=log,
            env=torchrun.ranks_environment(meeting.folder, world_size, import_from),
            start_new_session=os.name == "posix",
        )
    try:
        yield process
    finally:
        _end(process, meeting, world_size)


def _end(process: "subprocess.Popen[bytes]", meeting: Meeting, world_size: int) -> None:
    """End torchrun and every rank, whatever state they are in."""
    assert process.stdin is not None
    process.stdin.close()  # ranks that can still run leave by themselves
    for rank in range(world_size):
        if (pid := meeting.pid(rank)) is not None and process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    try:
        process.wait(LAST_WORDS)
    except subprocess.TimeoutExpired:
        process.terminate()  # it takes ranks with it that had not said who they are
        try:
            process.wait(2 * STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
