"""What a lesson asks: how a right answer is told, and what a wrong one shows. Data, no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["number", "choice", "choices", "function", "run", "runs"]

Test = Callable[[Any], bool]


@dataclass(frozen=True, kw_only=True)
class Question:
    """One check of a lesson."""

    kind: Kind
    right: Test
    why: str
    """Said after a right answer: what it shows."""
    misconceptions: tuple[tuple[Test, str], ...] = ()
    """What a wrong answer shows, the first that fits; never the answer."""
    hint: str
    """Said to a wrong answer that fits no misconception."""
    choices: tuple[str, ...] = ()
    """Of a "choice" or "choices" question."""


def near(value: float, relative: float = 0.01) -> Test:
    """Return a test for numbers within `relative` of `value`."""
    return lambda answer: abs(answer - value) <= relative * abs(value)


def equal(value: Any) -> Test:
    """Return a test for `value` itself."""
    return lambda answer: answer == value


def above(value: float) -> Test:
    """Return a test for larger numbers."""
    return lambda answer: answer > value


def below(value: float) -> Test:
    """Return a test for smaller numbers."""
    return lambda answer: answer < value


def within(least: float, most: float) -> Test:
    """Return a test for numbers from `least` to `most`."""
    return lambda answer: least <= answer <= most


def gives(*cases: tuple[tuple[Any, ...], float]) -> Test:
    """Return a test for functions that map each case's arguments to its number, up to rounding."""

    def test(function: Callable[..., Any]) -> bool:
        found = [(function(*arguments), wanted) for arguments, wanted in cases]
        return all(answer is not ... and abs(float(answer) - wanted) < 1e-6 for answer, wanted in found)

    return test
