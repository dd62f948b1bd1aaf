"""Predicted runs against the memory of cards: a table in GiB, and bars with each card's limit as a line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from memlab.memory.cards import Card
from memlab.memory.cards import card as card_named
from memlab.run import Run
from memlab.ui.heat_map_figure import available_bytes
from memlab.ui.html import block_html, keys_html, plain_table_html
from memlab.ui.palette import CATEGORY_COLOURS, category_label
from memlab.units import GiB, MiB

NAME_WIDTH = 190
"""Pixels left of the bars, so that no line runs through a name."""
LONGEST_BAR = 310
"""Pixels of the largest peak, or of the largest card's limit: with a card's name beyond it they fit half a window."""
LINE_HEIGHT = 12
"""Pixels of a card's name: each has a line of its own, as cards may be near each other."""
LEAST_SHOWN = 10 * MiB
"""Categories that no run has more of have no row; the total counts them."""


@dataclass(frozen=True, repr=False)
class Budget:
    """The peaks of named runs and the cards that they are held against."""

    runs: Mapping[str, Run]
    cards: tuple[Card, ...]

    @property
    def categories(self) -> list[str]:
        """The categories that are worth a row, from the ground up."""
        return [
            name
            for name in CATEGORY_COLOURS
            if any(run.peak[name] > LEAST_SHOWN for run in self.runs.values())
        ]

    def fits(self, run: Run, card: Card) -> bool:
        """Say whether the allocator's reserve is within the card's memory less the CUDA context at its smallest."""
        if run.environment.get("device") == f"card:{card.name}":
            return run.fits  # its allocator was tried within this limit
        return run.peak_reserved <= available_bytes(card)

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the table: a head, a row a category, the totals, and whether each card holds the run."""
        runs = self.runs.values()
        yield ("GiB at the peak, predicted", *self.runs)
        for name in self.categories:
            yield (category_label(name), *(f"{run.peak[name] / GiB:.1f}" for run in runs))
        yield ("live tensors", *(f"{run.peak.total / GiB:.1f}" for run in runs))
        yield ("allocator's reserve", *(f"{run.peak_reserved / GiB:.1f}" for run in runs))
        for card in self.cards:
            answers = ("yes" if self.fits(run, card) else "no" for run in runs)
            yield (f"fits {available_bytes(card) / GiB:.1f} of {card.name}", *answers)

    def __repr__(self) -> str:
        rows = [*self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
        )

    def _repr_html_(self) -> str:
        return plain_table_html(*self.rows()) + self._bars()

    def _bars(self) -> str:
        """Draw what the table says; so it is hidden from those who hear the table."""
        ends = [*(run.peak.total for run in self.runs.values()), *map(available_bytes, self.cards)]
        pixels = LONGEST_BAR / max(ends)
        bars = "".join(_bar(name, run, self.categories, pixels) for name, run in self.runs.items())
        lines = "".join(_limit(card, pixels, LINE_HEIGHT * number) for number, card in enumerate(self.cards))
        above = LINE_HEIGHT * len(self.cards) + 4
        picture = f'<div style="position:relative;padding-top:{above}px">{lines}{bars}</div>'
        return f'<div aria-hidden="true">{picture}<div>{keys_html(self.categories)}</div></div>'


def budget(runs: Mapping[str, Run], cards: Sequence[str] = ("rtx-4090", "a100-40gb", "a100-80gb")) -> Budget:
    """Return `runs` beside the memory of `cards`; raise ValueError where there is none, and CardError."""
    if not runs:
        raise ValueError(
            'there is no run: hand in runs by name, as in {"16 B": memlab.predict(plan, card=...)}.'
        )
    return Budget(dict(runs), tuple(sorted(map(card_named, cards), key=available_bytes)))


def _bar(name: str, run: Run, categories: Sequence[str], pixels: float) -> str:
    blocks = "".join(block_html(category, round(run.peak[category] * pixels)) for category in categories)
    words = f"{escape(name)}, {run.peak.total / GiB:.1f} GiB"
    head = (
        f'<span style="display:inline-block;width:{NAME_WIDTH}px;white-space:normal;vertical-align:middle">'
        f"{words}</span>"
    )
    return f'<div style="white-space:nowrap">{head}{blocks}</div>'


def _limit(card: Card, pixels: float, top: int) -> str:
    place = f"left:{NAME_WIDTH + round(available_bytes(card) * pixels)}px;top:{top}px;bottom:0"
    return (
        f'<div style="position:absolute;{place};border-left:2px dashed currentColor;padding-left:3px;'
        f'font-size:11px;line-height:1;white-space:nowrap">{escape(card.name)}</div>'
    )
