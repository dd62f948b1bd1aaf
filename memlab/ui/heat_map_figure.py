"""The heat map as data: peak over micro-batch and sequence length, and the limit of each card as a line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memlab.memory.beyond import beyond_allocator
from memlab.memory.cards import Card
from memlab.ui.palette import line_style
from memlab.ui.scale import scale_for
from memlab.ui.spec import Figure, Heat, Series, Table
from memlab.units import format_bytes

APART = 0.05
"""Cells by which lines that run along the same edges stand apart."""
WAITS = "..."

Peaks = Mapping[tuple[int, int], int]
"""The allocator's peak reserve in bytes, by micro-batch size and sequence length, as far as known."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What the heat map's cells stand for."""

    micro_batch_sizes: tuple[int, ...]
    sequence_lengths: tuple[int, ...]
    cards: tuple[Card, ...]


def heat_map_figure(grid: Grid, peaks: Peaks, plan: str) -> Figure:
    """Return the cells that are known, and each card's line as far as they tell it; `plan` says what of."""
    scale = scale_for(max(peaks.values(), default=0))
    known = [(size, length) in peaks for length in grid.sequence_lengths for size in grid.micro_batch_sizes]
    return Figure(
        title="Peak over micro-batch and sequence length",
        note=f"in {scale.name}; left of and below a card's line it fits",
        x_label="micro-batch size",
        y_label="sequence length",
        heat=Heat(
            columns=tuple(map(str, grid.micro_batch_sizes)),
            rows=tuple(map(str, grid.sequence_lengths)),
            shades=np.array([
                [np.log2(peaks.get((size, length), np.nan)) for size in grid.micro_batch_sizes]
                for length in grid.sequence_lengths
            ]),
            words=tuple(
                tuple(_word(peaks.get((size, length)), scale.unit) for size in grid.micro_batch_sizes)
                for length in grid.sequence_lengths
            ),
        ),
        series=tuple(_line(grid, peaks, number) for number in range(len(grid.cards))) if any(known) else (),
        x_range=(-0.5 - 2 * APART, len(grid.micro_batch_sizes) - 0.5 + 2 * APART),
        y_range=(-0.5 - 2 * APART, len(grid.sequence_lengths) - 0.5 + 2 * APART),
        table=_table(grid, peaks, plan),
    )  # fmt: skip


def _word(peak: int | None, unit: int) -> str:
    if peak is None:
        return WAITS
    size = peak / unit
    return f"{size:.1f}" if size < 100 else f"{size:.0f}"


def available_bytes(card: Card) -> int:
    """Return the card's memory less the CUDA context at its smallest, as the planner has it."""
    return card.memory_bytes - beyond_allocator(card)["cuda_context_low"]


def how_many_fit(grid: Grid, peaks: Peaks, card: Card, length: int) -> int | None:
    """Return how many of the micro-batch sizes, from the smallest on, fit `card`; None where that is not known yet."""
    limit = available_bytes(card)
    for place, size in enumerate(grid.micro_batch_sizes):
        peak = peaks.get((size, length))
        if peak is None:
            return None
        if peak > limit:
            return place
    return len(grid.micro_batch_sizes)


def _line(grid: Grid, peaks: Peaks, number: int) -> Series:
    card = grid.cards[number]
    aside = APART * (number - (len(grid.cards) - 1) / 2)
    x: list[float] = []
    y: list[float] = []
    for row, length in enumerate(grid.sequence_lengths):
        fitting = how_many_fit(grid, peaks, card, length)
        place = np.nan if fitting is None else fitting - 0.5 + aside
        x += [place, place]
        y += [row - 0.5 + aside, row + 0.5 + aside]
    colour, dash = line_style(number)
    return Series(
        name=f"{card.title}: {format_bytes(available_bytes(card))}",
        x=np.array(x),
        y=np.array(y),
        colour=colour,
        dash=dash,
    )


def _table(grid: Grid, peaks: Peaks, plan: str) -> Table:
    return Table(
        caption=f"Allocator's peak reserve (predicted) of {plan}, by sequence length and micro-batch size; and the "
        "largest of these micro-batches that fits each card",
        header=(
            "sequence length",
            *(f"micro-batch {size}" for size in grid.micro_batch_sizes),
            *(f"largest on {card.name}" for card in grid.cards),
        ),
        rows=tuple(_row(grid, peaks, length) for length in grid.sequence_lengths),
    )


def _row(grid: Grid, peaks: Peaks, length: int) -> tuple[str, ...]:
    cells = [peaks.get((size, length)) for size in grid.micro_batch_sizes]
    return (
        str(length),
        *(WAITS if peak is None else format_bytes(peak) for peak in cells),
        *(_largest(grid.micro_batch_sizes, how_many_fit(grid, peaks, card, length)) for card in grid.cards),
    )


def _largest(sizes: Sequence[int], fitting: int | None) -> str:
    if fitting is None:
        return WAITS
    return str(sizes[fitting - 1]) if fitting else "none"
