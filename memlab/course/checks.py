"""`check("01-a", answer)` says right, or which misconception the answer shows; never the answer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import Any, Literal

from typing_extensions import assert_never

from memlab.course.questions import Question
from memlab.run import Run

LESSONS = ("01", "02", "04", "05", "07", "09")

State = Literal["right", "wrong", "unanswered"]
HEADS: dict[State, str] = {"right": "Right.", "wrong": "Not yet.", "unanswered": "Not answered yet."}


@dataclass(frozen=True)
class Verdict:
    """What a check found. Its repr is the sentence that a learner reads."""

    question: str
    state: State
    message: str

    def __repr__(self) -> str:
        return f"{self.question}: {HEADS[self.state]} {self.message}"

    def _repr_html_(self) -> str:
        mark = "✓" if self.state == "right" else "○"
        head = f"<b>{mark} {escape(self.question)}: {HEADS[self.state]}</b>"
        return f'<div role="status">{head} {escape(self.message)}</div>'


def check(name: str, answer: Any) -> Verdict:
    """Judge `answer` to the question `name`, such as "01-a"; raise KeyError for a question that is none."""
    question = _question(name)
    if answer is None or answer is ...:
        return Verdict(name, "unanswered", "Put your answer in the place of None and run the cell again.")
    if complaint := _unfit(question, answer):
        return Verdict(name, "wrong", complaint)
    answer = set(answer) if question.kind == "choices" else answer
    try:
        return _judged(name, question, answer)
    except Exception as error:  # a learner's function may raise anything
        return Verdict(name, "wrong", f"Your code raised {type(error).__name__}: {error}")


def _question(name: str) -> Question:
    known = questions()
    if name not in known:
        raise KeyError(f"no question is named {name!r}; there are {', '.join(known)}.")
    return known[name]


def questions() -> Mapping[str, Question]:
    """Return every question of every lesson by its name."""
    lessons = (import_module(f"memlab.course.lesson_{lesson}") for lesson in LESSONS)
    return {name: question for lesson in lessons for name, question in lesson.QUESTIONS.items()}


def _judged(name: str, question: Question, answer: Any) -> Verdict:
    if question.right(answer):
        return Verdict(name, "right", question.why)
    for shows, message in question.misconceptions:
        if shows(answer):
            return Verdict(name, "wrong", message)
    return Verdict(name, "wrong", question.hint)


def _unfit(question: Question, answer: Any) -> str | None:
    """Say what kind of answer is wanted, where `answer` is of another kind."""
    match question.kind:
        case "number":
            fits = isinstance(answer, (int, float)) and not isinstance(answer, bool) and math.isfinite(answer)
            return None if fits else f"A number is wanted; {_shown(answer)} is none."
        case "choice":
            fits = isinstance(answer, str) and answer in question.choices
            return None if fits else f"Choose one of {_listed(question)}; {_shown(answer)} is none of them."
        case "choices":
            fits = isinstance(answer, (set, frozenset, list, tuple)) and all(
                isinstance(item, str) and item in question.choices for item in answer
            )
            return None if fits else f"A set of some of {_listed(question)} is wanted, not {_shown(answer)}."
        case "function":
            return None if callable(answer) else f"A function is wanted; {_shown(answer)} cannot be called."
        case "run":
            fits = isinstance(answer, Run)
            return (
                None if fits else f"Hand in the Run that memlab.measure(plan) returns, not {_shown(answer)}."
            )
        case "runs":
            fits = isinstance(answer, (list, tuple)) and len(answer) == 2
            fits = fits and all(isinstance(run, Run) for run in answer)
            return None if fits else f"Hand in two Runs, as (first, second), not {_shown(answer)}."
        case _:
            assert_never(question.kind)


def _listed(question: Question) -> str:
    return ", ".join(map(repr, question.choices))


def _shown(answer: Any) -> str:
    text = repr(answer)
    return text if len(text) <= 40 else f"a value of type {type(answer).__name__}"
