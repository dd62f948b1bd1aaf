"""A guess is written before the run and kept: the first one stands."""

import math
from dataclasses import dataclass

_KEPT: dict[str, float] = {}


@dataclass(frozen=True)
class Guess:
    """A learner's guess; `against(measured)` puts the measurement beside it."""

    name: str
    value: float | None
    unit: str

    def __repr__(self) -> str:
        if self.value is None:
            return f"{self.name}: write your guess in the place of None first. A wrong guess teaches most."
        return f"{self.name}: you guess {self.value:,.6g} {self.unit}. It is kept; now measure."

    def against(self, measured: float) -> str:
        """Return one line with the guess, the measurement and their ratio."""
        found = f"{self.name}: measured {measured:,.6g} {self.unit}"
        if self.value is None:
            return f"{found}; you made no guess."
        ratio = f", {measured / self.value:.3g} x your guess" if self.value else ""
        return f"{found}; you guessed {self.value:,.6g} {self.unit}{ratio}."


def predict(name: str, value: float | None, unit: str) -> Guess:
    """Keep `value` as the guess called `name`; later values do not replace it until the kernel restarts.

    None: no guess yet. Raises ValueError for what is no number.
    """
    if value is None:
        return Guess(name, _KEPT.get(name), unit)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"the guess {value!r} must be a number of {unit}, or None for no guess yet.")
    return Guess(name, _KEPT.setdefault(name, float(value)), unit)
