"""HTML pieces from plain data; every text is escaped here and nowhere else."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from memlab.ui.palette import CATEGORY_COLOURS, INK, category_label
from memlab.ui.spec import FILLED, STACKED, Figure, Series, Table

STYLE = f"<style>{Path(__file__).with_name('style.css').read_text(encoding='utf-8')}</style>"


def table_html(table: Table, empty: str = "Nothing yet: press Run.") -> str:
    """Return `table` with its caption and heads named for screen readers."""
    body = "".join(map(_row, table.rows))
    if not table.rows:
        body = f'<tr><td colspan="{len(table.header)}">{escape(empty)}</td></tr>'
    caption = f"<caption>{escape(table.caption)}</caption>"
    return f'<table class="memlab-table">{caption}{_head(table.header)}<tbody>{body}</tbody></table>'


def plain_table_html(head: Sequence[str], *rows: Sequence[str]) -> str:
    """Return a table for the output of a cell, which brings its own look."""
    return f"<table>{_head(head)}<tbody>{''.join(map(_row, rows))}</tbody></table>"


def block_html(category: str, width: int) -> str:
    """Return a block of the colour of `category`, `width` pixels wide."""
    colour = CATEGORY_COLOURS[category]
    return f'<span style="display:inline-block;height:12px;width:{width}px;background:{colour}"></span>'


def keys_html(categories: Sequence[str]) -> str:
    """Return the names of `categories`, each beside its colour."""
    return " ".join(f"{block_html(name, 12)} {escape(category_label(name))}" for name in categories)


def _head(names: Sequence[str]) -> str:
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    return f"<thead><tr>{cells}</tr></thead>"


def _row(row: Sequence[str]) -> str:
    first, *others = row
    return f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(text)}</td>" for text in others)}</tr>'


def legend_html(figure: Figure) -> str:
    """Return the names of what is drawn, top of the stack first, each with its colour and dash."""
    stacked = [series for series in figure.series if series.kind in STACKED]
    lines = [series for series in figure.series if series.kind not in STACKED]
    items = "".join(f"<li>{_key(s)}{escape(s.name)}</li>" for s in [*lines, *reversed(stacked)])
    return f'<ul class="memlab-legend">{items}</ul>'


DASH_ARRAYS = {
    "solid": "",
    "dash": "6 3",
    "dot": "2 2",
    "dashdot": "6 3 2 3",
    "longdash": "10 3",
    "longdashdot": "10 3 2 3",
}
"""Lengths in pixels, for SVG."""


def _key(series: Series) -> str:
    if series.kind in FILLED:
        pale = " memlab-pale" if series.faded else ""
        return f'<span class="memlab-swatch{pale}" style="background:{series.colour}"></span>'
    ink = ' class="memlab-ink"' if series.colour == INK else ""
    return (
        f'<svg width="30" height="8" aria-hidden="true"><path{ink} d="M0 4H30" stroke-width="2.5" '
        f'stroke="{series.colour}" stroke-dasharray="{DASH_ARRAYS[series.dash]}"/></svg>'
    )


def title_html(title: str, note: str) -> str:
    """Return a card's head."""
    return f'<div class="memlab-title"><b>{escape(title)}</b> <span>{escape(note)}</span></div>'


def error_html(sentence: str, details: str = "") -> str:
    """Return one red line, announced at once, with the traceback folded below it."""
    if not sentence:
        return ""
    folded = f"<details><summary>details</summary><pre>{escape(details)}</pre></details>" if details else ""
    return f'<div class="memlab-error" role="alert"><b>Error:</b> {escape(sentence)}{folded}</div>'


def note_html(sentences: Sequence[str]) -> str:
    """Return what a learner should know, one line a sentence."""
    return "".join(
        f'<div class="memlab-note"><b>Note:</b> {escape(sentence)}</div>' for sentence in sentences
    )


def product_html(micro_batch_size: int, accumulation_steps: int, world_size: int) -> str:
    """Return the global batch as the product that it is."""
    ranks = f"{world_size} rank{'' if world_size == 1 else 's'}"
    total = micro_batch_size * accumulation_steps * world_size
    factors = f"{micro_batch_size} x {accumulation_steps} x {ranks}"
    return f'<div class="memlab-product"><span>{factors}</span> <span>= global batch {total}</span></div>'


def text_html(kind: str, text: str) -> str:
    """Return `text` in a place of its own look."""
    return f'<div class="{kind}">{escape(text)}</div>'


def status_html(text: str) -> str:
    """Return `text` such that screen readers say it when it changes."""
    return f'<div role="status">{escape(text)}</div>'
