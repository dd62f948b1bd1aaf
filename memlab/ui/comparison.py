"""Runs beside each other: exact bytes by category as a table, and as bars drawn in plain HTML."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from memlab.run import Run
from memlab.trace import CATEGORIES
from memlab.ui.html import block_html, keys_html, plain_table_html
from memlab.ui.palette import category_label
from memlab.units import format_bytes

LONGEST_BAR = 320
"""Pixels of the largest peak."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """The peaks of named runs, the first one being what the others are held against."""

    runs: Mapping[str, Run]

    @property
    def categories(self) -> list[str]:
        """The categories that hold a byte at the peak of any run."""
        return [name for name in CATEGORIES if any(run.peak[name] for run in self.runs.values())]

    def share(self, run: Run) -> float:
        """Return the run's peak as a share of the first run's."""
        return run.peak.total / next(iter(self.runs.values())).peak.total

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table: a head, then a row a category with its bytes in each run, and the totals."""
        runs = self.runs.values()
        return [
            ("bytes at the peak", *self.runs),
            *((category_label(name), *(f"{run.peak[name]:,}" for run in runs)) for name in self.categories),
            ("peak", *(f"{run.peak.total:,}" for run in runs)),
            ("share of the first", *(f"{self.share(run):.0%}" for run in runs)),
            ("when", *(run.peak.phase for run in runs)),
        ]

    def __repr__(self) -> str:
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(
                [
                    row[0].ljust(widths[0]),
                    *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)),
                ]
            )
            for row in rows
        )

    def _repr_html_(self) -> str:
        return plain_table_html(*self.rows()) + self._bars()

    def _bars(self) -> str:
        return f'<div aria-hidden="true">{"".join(map(self._bar, self.runs))}<div>{keys_html(self.categories)}</div></div>'

    def _bar(self, name: str) -> str:
        peak = self.runs[name].peak
        largest = max(run.peak.total for run in self.runs.values())
        blocks = "".join(
            block_html(category, round(LONGEST_BAR * peak[category] / largest))
            for category in self.categories
        )
        return f"<div>{blocks} {escape(name)}, {format_bytes(peak.total)}</div>"


def compare(runs: Mapping[str, Run]) -> Comparison:
    """Return `runs` beside each other; raise ValueError where there is none."""
    if not runs:
        raise ValueError('there is nothing to compare: hand in runs by name, as in {"baseline": run}.')
    return Comparison(dict(runs))
