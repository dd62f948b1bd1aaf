"""One guard around every callback and the pump: an error there shows only in a log nobody reads."""

import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol


class Reports(Protocol):
    """Something that can show an error."""

    def report(self, sentence: str, details: str = "") -> None:
        """Show one line, with `details` folded below it."""


def guarded(method: Callable[..., None]) -> Callable[..., None]:
    """Turn an exception of a method into one line of its object's panel."""

    @wraps(method)
    def safe(self: Reports, *values: Any) -> None:
        try:
            method(self, *values)
        except Exception as error:  # whatever it is, it belongs before the learner's eyes
            self.report(*told(error))

    return safe


def told(error: Exception) -> tuple[str, str]:
    """Return an error as one sentence and its traceback as text, which keeps no object alive."""
    first_line = (str(error).splitlines() or [""])[0]
    known = isinstance(error, (ValueError, OSError, RuntimeError)) and first_line
    sentence = first_line if known else f"{type(error).__name__}: {first_line or 'no message'}"
    return sentence, "".join(traceback.format_exception(error))
