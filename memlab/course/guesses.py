"""A guess is written before the run and kept: the first one stands."""

import math
from dataclasses import dataclass

_KEPT: dict[str, float] = {}


class Sentence(str):
    """A text that a notebook shows as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Guess:
    """A learner's guess; `against(measured)` puts the measurement beside it."""

    name: str
    value: float | None
    unit: str

    def __repr__(self) -> str:
        if self.value is None:
            return f"{self.name}: write your guess in the place of None first. A wrong guess teaches most."
        return f"{self.name}: you guess {self._number(self.value)}. It is kept; now measure."

    def against(self, measured: float) -> Sentence:
        """Return one line with the guess, the measurement and their ratio."""
        found = f"{self.name}: {self._number(measured)}"
        if self.value is None:
            return Sentence(f"{found}; you made no guess.")
        ratio = f": it is {measured / self.value:.3g} x your guess" if self.value else ""
        return Sentence(f"{found}; you guessed {self.value:,.6g}{ratio}.")

    def _number(self, value: float) -> str:
        return f"{value:,.6g} {self.unit}".rstrip()


def predict(name: str, value: float | None, unit: str) -> Guess:
    """Keep `value` as the guess called `name`; later values do not replace it until the kernel restarts.

    None: no guess yet. Raises ValueError for what is no number.
    """
    if value is None:
        return Guess(name, _KEPT.get(name), unit)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"the guess {value!r} must be a number of {unit}, or None for no guess yet.")
    return Guess(name, _KEPT.setdefault(name, float(value)), unit)
