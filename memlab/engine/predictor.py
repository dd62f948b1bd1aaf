"""The notebook's end of the process that predicts, and that process: `python -m memlab.engine.predictor`.

`predict` changes settings of torch for a whole process, and a kernel stays without torch. No torch here.
"""

import json
import sys
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from memlab.engine.process import STDERR_LINES, ending, started
from memlab.events import StepMemory, from_json
from memlab.plan import Plan
from memlab.run import Run

Slot = Literal["shown", "run"]
"""What a prediction is for: the setting that is shown, or the run that begins. In each the newest wins."""
REMEMBERED = 64
"""Answers that are kept, the newest ones; each takes about a quarter of a MiB."""


@dataclass(frozen=True)
class Question:
    """A plan, and the card that it is predicted for; None: this device."""

    plan: Plan
    card: str | None = None


@dataclass(frozen=True, eq=False)
class Prediction:
    """What `predict` found, without its trace, and the memory during the steps that it traced."""

    run: Run
    memories: tuple[StepMemory, ...]
    """The first step, and the second, which later ones repeat."""

    def memory(self, step: int) -> StepMemory:
        """Return the memory during optimizer step number `step`, from 0."""
        return self.memories[min(step, len(self.memories) - 1)]


@dataclass(frozen=True)
class Refusal:
    """Says in one sentence why there is no prediction, and the way out."""

    sentence: str
    lasting: bool = True
    """Whether it would be the same another time; not where the process died."""


class Predictor:
    """Answers questions in a process of its own; remembers the answers; nothing here waits.

    Closed at the latest when the interpreter ends or the Predictor is forgotten.
    """

    def __init__(self) -> None:
        self._answers: dict[Question, Prediction | Refusal] = {}
        self._process: _Process | None = None

    def start(self) -> None:
        """Start the process, unless one lives; return at once while it warms up."""
        if self._process is None or not self._process.alive:
            self.close()
            self._process = _Process(self._answers)
            self._at_exit = weakref.finalize(self, self._process.kill)

    def ask(self, question: Question, slot: Slot = "shown") -> None:
        """Have `question` answered, in the place of an older one of this slot that still waits."""
        match self.answer(question):
            case Refusal(lasting=False):
                self._answers.pop(question, None)
        if self.answer(question) is None:
            self.start()
            assert self._process is not None
            self._process.send(question, slot)

    def answer(self, question: Question) -> Prediction | Refusal | None:
        """Return the answer to `question`; None while there is none."""
        return self._answers.get(question)

    def waits_for(self, question: Question) -> float | None:
        """Return for how many seconds `question` has been waiting; None where nobody works at it."""
        return self._process.waits_for(question) if self._process is not None else None

    def cancel(self) -> None:
        """Give up all questions that wait: their process ends, and a new one warms up."""
        self.close()
        self.start()

    def close(self) -> None:
        """End the process; the answers stay."""
        if self._process is not None:
            self._at_exit.detach()
            self._process.kill()

    @property
    def alive(self) -> bool:
        """Whether there is a process, warm or warming up."""
        return self._process is not None and self._process.alive

    @property
    def pid(self) -> int | None:
        """Number of the process, while it lives."""
        return self._process.pid if self._process is not None and self._process.alive else None


class _Process:
    """One process from its start to its end; a thread reads what it answers into `answers`."""

    def __init__(self, answers: dict[Question, Prediction | Refusal]) -> None:
        self._answers = answers
        self._asked: dict[int, tuple[Question, float]] = {}
        self._newest: dict[Slot, int] = {}
        self._lock = threading.Lock()
        self._number = 0
        self._killed = False
        self._errors: deque[str] = deque(maxlen=STDERR_LINES)
        self._popen = started([sys.executable, "-u", "-m", "memlab.engine.predictor"])
        self._error_reader = threading.Thread(target=self._read_errors, daemon=True)
        self._error_reader.start()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def alive(self) -> bool:
        return not self._killed and self._popen.poll() is None

    def send(self, question: Question, slot: Slot) -> None:
        with self._lock:
            waiting = self._asked.get(self._newest.get(slot, 0))
            if waiting is not None and waiting[0] == question:
                return
            self._number += 1
            self._newest[slot] = self._number
            self._asked[self._number] = (question, time.monotonic())
            self._write({"number": self._number, "slot": slot, "card": question.card}, question.plan)

    def _write(self, words: dict[str, Any], plan: Plan) -> None:
        try:
            self._popen.stdin.write(json.dumps({**words, "plan": plan.to_dict()}) + "\n")
            self._popen.stdin.flush()
        except (OSError, ValueError):
            pass  # the process is gone: `_read` says so

    def waits_for(self, question: Question) -> float | None:
        with self._lock:
            begun = [since for asked, since in self._asked.values() if asked == question]
        return time.monotonic() - begun[-1] if begun else None  # an earlier one may have been dropped

    def kill(self) -> None:
        """End the process at once: it holds nothing that could be lost."""
        self._killed = True
        self._popen.kill()
        self._popen.wait()
        try:
            self._popen.stdin.close()
        except OSError:
            pass  # what was not sent yet
        with self._lock:
            self._asked.clear()

    def _read_errors(self) -> None:
        with self._popen.stderr as lines:
            self._errors.extend(lines)

    def _read(self) -> None:
        with self._popen.stdout as lines:
            for line in lines:
                self._take(json.loads(line))
        code = self._popen.wait()
        self._error_reader.join(1)
        with self._lock:
            left, self._asked = list(self._asked.values()), {}
        if not self._killed:
            last = (list(self._errors) or ["it said nothing"])[-1].strip()
            for question, _ in left:
                sentence = f"The predicting process died ({ending(code)}): {last}"
                self._keep(question, Refusal(sentence, lasting=False))

    def _take(self, words: dict[str, Any]) -> None:
        with self._lock:
            for number in words["dropped"]:
                self._asked.pop(number, None)
            asked = self._asked.pop(words["number"], None)
        if asked is not None:
            self._keep(asked[0], _answer(words))

    def _keep(self, question: Question, answer: Prediction | Refusal) -> None:
        while len(self._answers) >= REMEMBERED:
            self._answers.pop(next(iter(self._answers)))
        self._answers[question] = answer


def _answer(words: dict[str, Any]) -> Prediction | Refusal:
    if "refusal" in words:
        return Refusal(words["refusal"])
    peaks = words["run"]["step_peaks"]
    run = Run.from_dict({**words["run"], "step_peaks": peaks + peaks[-1:] * words["repeats"]})
    return Prediction(run, tuple(from_json(line) for line in words["memories"]))


def main() -> None:
    """Answer one client until its end of the pipe closes."""
    from memlab.engine.predictor_service import serve

    serve()


if __name__ == "__main__":
    main()
