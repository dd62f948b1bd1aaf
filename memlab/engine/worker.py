"""A process that trains: plans in on standard input, events out, one JSON line each.

Started by `memlab.engine.client.Worker`; nothing that happens here can stop a notebook's kernel.
"""

import _thread
import argparse
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import Any, TextIO

import torch

from memlab.engine.coalesce import Mailbox
from memlab.engine.control import Control, Stopped
from memlab.engine.environment import processor_count
from memlab.engine.measure import measure, measure_events
from memlab.engine.out_of_memory import release
from memlab.engine.protocol import READY
from memlab.events import Event, Failed, to_json
from memlab.plan import Plan, PlanError

WRITES_APART = 0.03
"""Seconds between two writes: curves that come meanwhile are coalesced, and training never waits."""
PATIENCE = 0.2
"""Seconds after Stop until a step that reaches no mark is broken off inside."""


class Service:
    """The main thread trains; one thread reads commands, one writes events."""

    def __init__(self, commands: TextIO, out: TextIO) -> None:
        self._commands = commands
        self._out = out
        self._plans: queue.Queue[tuple[Plan, Control]] = queue.Queue()
        self._control = Control()
        self._events = Mailbox()

    def serve(self) -> None:
        """Run plans until standard input closes, which ends the process."""
        signal.signal(signal.SIGINT, self._interrupted)
        threading.excepthook = _die_with
        threading.Thread(target=self._read, daemon=True).start()
        warm_up()
        print(READY, file=self._out, flush=True)
        threading.Thread(target=self._write, daemon=True).start()
        while True:
            plan, self._control = self._plans.get()
            self._run(plan, self._control)
            release()

    def _read(self) -> None:
        latest = Control()
        for line in self._commands:
            command = json.loads(line)
            match command["command"]:
                case "run":
                    latest = Control()
                    self._plans.put((Plan.from_dict(command["plan"]), latest))
                case "pause":
                    latest.pause()
                case "resume":
                    latest.resume()
                case "stop":
                    latest.stop()
                    threading.Thread(target=_insist, args=(latest,), daemon=True).start()
        os._exit(0)  # the kernel is gone; the main thread may be deep inside a long operation

    def _write(self) -> None:
        while True:
            events = self._events.wait()
            for event in events:
                print(to_json(event), file=self._out)
            self._out.flush()
            if torch.cuda.is_initialized() and any(map(_may_have_broken_cuda, events)):
                os._exit(1)
            time.sleep(WRITES_APART)

    def _run(self, plan: Plan, control: Control) -> None:
        try:
            for event in measure_events(plan, control=control):
                self._events.put(event)
        except Exception as error:  # whatever a run raises must reach the learner, as text alone
            self._events.put(failure(error))
        finally:
            control.ended.set()

    def _interrupted(self, *_: Any) -> None:
        # Runs on the main thread, between two bytecodes of whatever it does.
        if self._control.stopping and self._control.interruptible:
            raise Stopped


def _may_have_broken_cuda(event: Event) -> bool:
    # After an illegal access or a device-side assertion, every later call of the process fails.
    return isinstance(event, Failed) and event.kind == "error"


def _insist(control: Control) -> None:
    # Again and again: an exception inside a weak reference's callback is lost.
    while not control.ended.wait(PATIENCE):
        _thread.interrupt_main()


def _die_with(failed: threading.ExceptHookArgs) -> None:
    # Without its reading or writing thread this process would hang; its end tells the client.
    traceback.print_exception(failed.exc_type, failed.exc_value, failed.exc_traceback)
    os._exit(1)


def failure(error: BaseException) -> Failed:
    """Return what broke off a run, in words."""
    details = "".join(traceback.format_exception(error))
    if isinstance(error, PlanError):
        return Failed(kind="plan", message=str(error))
    first_line = (str(error).splitlines() or ["no message"])[0]
    message = f"The run broke off with {type(error).__name__}: {first_line}; the details show where."
    return Failed(kind="error", message=message, details=details)


def warm_up() -> None:
    """Train for one tiny step, so that the first real run starts at once."""
    with suppress(PlanError):  # no such device, or no text: the run itself will say so
        measure(Plan(micro_batch_size=1, sequence_length=8, steps=1))


def private_output() -> TextIO:
    """Return standard output for events alone; what other code prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    return out


def main() -> None:
    """Serve one client."""
    parser = argparse.ArgumentParser(prog="python -m memlab.engine.worker", description=__doc__)
    # One core stays free of torch's threads: the notebook draws on it.
    parser.add_argument("--threads", type=int, default=max(1, processor_count() - 1))
    torch.set_num_threads(parser.parse_args().threads)
    Service(sys.stdin, private_output()).serve()


if __name__ == "__main__":
    main()
