"""The process that predicts: questions in on standard input, one JSON line out for each answer."""

import json
import os
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import replace
from typing import Any, TextIO

import numpy as np
import torch

from memlab.engine.predict import predict
from memlab.engine.thin import step_memory
from memlab.engine.worker import private_output
from memlab.events import StepMemory, to_json
from memlab.plan import Plan, PlanError
from memlab.predicting.steps import micro_batches_to_trace
from memlab.run import Run
from memlab.trace import ARRAYS, PHASES, Trace

PASSES = (PHASES.index("forward"), PHASES.index("backward"))


class Questions:
    """Those that wait: of each slot the newest alone."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, Any]] = {}
        self._dropped: list[int] = []
        self._come = threading.Condition()

    def put(self, question: dict[str, Any]) -> None:
        """Let `question` take the place of an older one of its slot."""
        with self._come:
            older = self._waiting.pop(question["slot"], None)
            if older is not None:
                self._dropped.append(older["number"])
            self._waiting[question["slot"]] = question
            self._come.notify()

    def take(self) -> tuple[dict[str, Any], list[int]]:
        """Return the next question, and the numbers of those that were dropped; wait for one."""
        with self._come:
            self._come.wait_for(lambda: self._waiting)
            dropped, self._dropped = self._dropped, []
            return self._waiting.pop(next(iter(self._waiting))), dropped


def serve() -> None:
    """Answer until standard input closes, which ends the process."""
    out = private_output()
    questions = Questions()
    torch.set_num_threads(1)  # it computes nothing, and the run beside it does
    threading.Thread(target=_read, args=(sys.stdin, questions), daemon=True).start()
    with suppress(PlanError):  # no text, no such device: the question itself will say so
        predict(Plan(micro_batch_size=1, sequence_length=8, steps=2), progress=False)
    while True:
        question, dropped = questions.take()
        words = {"number": question["number"], "dropped": dropped, **answer(question)}
        print(json.dumps(words, allow_nan=False), file=out, flush=True)


def _read(lines: TextIO, questions: Questions) -> None:
    for line in lines:
        questions.put(json.loads(line))
    os._exit(0)  # the kernel is gone; the main thread may be in the middle of a long prediction


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the Run and the memory of its steps as JSON's values, or why there is none."""
    try:
        run = predict(Plan.from_dict(question["plan"]), question["card"], progress=False)
    except ValueError as error:  # PlanError, CardError, and what a prediction refuses: one sentence each
        return {"refusal": str(error)}
    except Exception as error:  # whatever it is must reach the learner, as text alone
        traceback.print_exc()
        line = (str(error).splitlines() or ["no message"])[0]
        return {"refusal": f"The prediction broke off with {type(error).__name__}: {line}"}
    assert run.trace is not None
    traced = len(run.trace.steps())
    return {
        # Later steps repeat the last traced one: a line of a million numbers stops a notebook for 0.2 s.
        "run": replace(run, trace=None, step_peaks=run.step_peaks[:traced]).to_dict(),
        "repeats": len(run.step_peaks[traced:]),
        "memories": [to_json(memory) for memory in step_memories(run)],
    }


def step_memories(run: Run) -> list[StepMemory]:
    """Return the memory during each step that a prediction traced, with all of its K micro-steps."""
    assert run.trace is not None
    return [
        step_memory(
            whole_step(trace, run.plan),
            step,
            allocated=run.peak_allocated,
            reserved=run.peak_reserved,
        )
        for step, trace in run.trace.steps().items()
    ]


def whole_step(trace: Trace, plan: Plan) -> Trace:
    """Return one step's `trace` with its second micro-step repeated up to K of them.

    A prediction traces two of them where all later ones are alike, or three where the last is not; storages keep
    the number of those they repeat.
    """
    training = np.isin(trace.phase, PASSES)
    second = np.flatnonzero(training & (trace.micro_step == 1))
    traced = int(trace.micro_step[training].max(initial=0)) + 1
    missing = plan.gradient_accumulation_steps - traced
    if missing < 1 or traced != micro_batches_to_trace(plan) or not len(second):
        return trace
    first, last = int(second[0]), int(second[-1]) + 1
    rows = np.concatenate(
        [np.arange(last), np.tile(np.arange(first, last), missing), np.arange(last, len(trace))]
    )
    columns = {name: getattr(trace, name)[rows] for name in ARRAYS}
    columns["micro_step"][last : last + missing * (last - first)] += np.repeat(
        np.arange(1, missing + 1, dtype=np.int32), last - first
    )
    after = slice(last + missing * (last - first), None)
    third = np.isin(columns["phase"][after], PASSES) & (columns["micro_step"][after] > 1)
    columns["micro_step"][after][third] += missing
    return replace(trace, **columns)
