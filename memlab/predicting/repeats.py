"""Stretches of a stream that come once for each block of a model, and the stream of a deeper model.

Two streams of models that differ by a few blocks, the *period*, differ by repeats: where the shallow one
has `u u u`, the deep one has `u u u u`. A unit's events refer to others: a release to its birth. Where units in
the middle refer alike, further units refer so too.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
_AHEAD = 12
"""Events that must agree behind a repeat."""


class Irregular(Exception):
    """The streams do not show how a deeper model's would go on."""


@dataclass(frozen=True)
class Piece:
    """A stretch of a stream: `units` equal units of `period` events, or, with units 0, events that come once."""

    first: int
    period: int
    units: int

    @property
    def length(self) -> int:
        """Events of the piece."""
        return self.period * max(1, self.units)


def pieces(shallow: Numbers, deep: Numbers) -> list[Piece]:
    """Return the pieces of `deep`; each repeat has one unit more than in `shallow`.

    Raises Irregular where the streams differ by anything but repeats.
    """
    found: list[Piece] = []
    end = 0
    for place, period in _insertions(shallow, deep):
        first, last = _extent(deep, place, period)
        first = max(first, end)
        units = (last - first) // period
        if units < 2:  # cut short by what came before
            raise Irregular("repeats overlap")
        if first > end:
            found.append(Piece(end, first - end, 0))
        found.append(Piece(first, period, units))
        end = first + units * period
    if end < len(deep):
        found.append(Piece(end, len(deep) - end, 0))
    return found


def _insertions(shallow: Numbers, deep: Numbers) -> list[tuple[int, int]]:
    """Return place and length of what `deep` has more."""
    found = []
    i = j = 0
    while True:
        same = _common(shallow[i:], deep[j:])
        i, j = i + same, j + same
        if i == len(shallow) and j == len(deep):
            return found
        period = _period_at(shallow, deep, i, j)
        found.append((j, period))
        j += period


def _common(one: Numbers, other: Numbers) -> int:
    """Return how many elements agree from the start."""
    length = min(len(one), len(other))
    differ = np.flatnonzero(one[:length] != other[:length])
    return int(differ[0]) if len(differ) else length


def _period_at(shallow: Numbers, deep: Numbers, i: int, j: int) -> int:
    """Return the shortest unit that `deep` repeats once more before it goes on as `shallow` for long."""
    rest = len(deep) - len(shallow) - (j - i)
    best, longest = 0, 0
    for period in range(1, min(j, rest) + 1):
        if deep[j - 1] == deep[j + period - 1] and np.array_equal(deep[j - period : j], deep[j : j + period]):
            ahead = _common(shallow[i : i + _AHEAD], deep[j + period :])
            at_end = i == len(shallow) and period == rest
            if at_end or ahead == min(_AHEAD, len(shallow) - i) > 0:
                return period
            if ahead > longest:
                best, longest = period, ahead
    if not best:
        raise Irregular(f"no repeat at event {j}")
    return best


def _extent(deep: Numbers, place: int, period: int) -> tuple[int, int]:
    """Return where the repeat around `place` begins and ends."""
    differ = np.flatnonzero(deep[period:] != deep[:-period])
    before, after = differ[differ < place - period], differ[differ >= place - period]
    first = int(before[-1]) + 1 if len(before) else 0
    last = (int(after[0]) if len(after) else len(deep) - period) + period
    return first, last


@dataclass(frozen=True)
class Targets:
    """What events refer to, each as an event of a unit of a piece; -1 as piece: to nothing."""

    piece: Numbers
    unit: Numbers
    """Within the piece; 0 where it comes once."""
    offset: Numbers


@dataclass(frozen=True)
class Layout:
    """Pieces of the things referred to, and how many further units each repeat gets."""

    period: Numbers
    units: Numbers
    """0: comes once."""

    def starts(self, more: int) -> Numbers:
        """Return where each piece begins once repeats have `more` units."""
        lengths = self.period * np.where(self.units > 0, self.units + more, 1)
        return np.concatenate([[0], np.cumsum(lengths)[:-1]])

    @classmethod
    def of(cls, parts: list[Piece]) -> "Layout":
        """Return the layout of a stream's pieces."""
        return cls(np.array([p.period for p in parts]), np.array([p.units for p in parts]))

    def targets(self, places: Numbers) -> Targets:
        """Say which event of which unit stands at each of `places`; -1: none."""
        starts = self.starts(0)
        piece = np.searchsorted(starts, places, side="right") - 1
        inside = places - starts[piece]
        unit, offset = np.divmod(inside, self.period[piece])
        return Targets(np.where(places < 0, -1, piece), unit, offset)


def lengthened(parts: list[Piece], targets: Targets, to: Layout, more: int) -> tuple[Numbers, Numbers]:
    """Return, for each event of a stream with `more` units, the event that it copies and the place it refers to.

    `targets` are those of the deep stream, within a layout of theirs. Raises Irregular where the units in
    the middle of a repeat do not refer alike.
    """
    sources, places = [], []
    starts = to.starts(more)
    for part in parts:
        source, unit, shift = _copied(part, targets, to, more)
        piece, offset = targets.piece[source], targets.offset[source]
        known = np.where(piece < 0, 0, piece)
        grown = to.units[known] > 0
        unit = np.where(grown, unit + shift, 0)
        size = np.where(grown, to.units[known] + more, 1)
        if ((unit < 0) | (unit >= size))[piece >= 0].any():
            raise Irregular("a unit refers beyond the others")
        sources.append(source)
        places.append(np.where(piece < 0, -1, starts[known] + unit * to.period[known] + offset))
    return np.concatenate(sources), np.concatenate(places)


def _copied(part: Piece, targets: Targets, to: Layout, more: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return the source of each event of a piece, the unit that its source refers to, and what to add."""
    if not part.units:
        source = np.arange(part.first, part.first + part.period)
        return source, targets.unit[source], _anchor(targets, to, source, more)
    table = np.arange(part.first, part.first + part.length).reshape(part.units, part.period)
    rule = _rule(table, targets)
    at = np.arange(part.units + more)[:, None]
    is_first, is_last = at < rule.first, at > rule.last + more
    if (is_first & is_last).any():
        raise Irregular("units at the ends meet")
    source_unit = np.where(is_first, at, np.where(is_last, at - more, rule.centre))
    source = np.take_along_axis(table, source_unit, axis=0)
    # In the middle: as many units on as the copy stands behind its source, or back from the end.
    behind = rule.direction * (at - rule.centre) + np.where(rule.direction < 0, more, 0)
    middle = ~(is_first | is_last) & (rule.direction != 0)
    shift = np.where(middle, behind, _anchor(targets, to, source, more))
    return source.ravel(), targets.unit[source].ravel(), shift.ravel()


def _anchor(targets: Targets, to: Layout, source: Numbers, more: int) -> Numbers:
    """Count a unit that is referred to from the nearer end of its repeat."""
    units = to.units[np.maximum(targets.piece[source], 0)]
    return np.where(2 * targets.unit[source] >= units, more, 0)


@dataclass(frozen=True)
class _Rule:
    """How the events of a unit refer to others; one number for each event."""

    direction: Numbers
    """By how many units what is referred to moves from one unit to the next: 1, -1, or 0: not at all."""
    centre: Numbers
    """A unit that follows the rule."""
    first: Numbers
    last: Numbers
    """First and last unit that do so without a break."""


def _rule(table: Numbers, targets: Targets) -> _Rule:
    """Find the rule that two neighbours near the middle follow."""
    piece, unit, offset = targets.piece[table], targets.unit[table], targets.offset[table]
    by = np.diff(unit, axis=0)
    both = (np.diff(piece, axis=0) == 0) & (np.diff(offset, axis=0) == 0) & (np.abs(by) <= 1)
    alike = both | ((piece[1:] < 0) & (piece[:-1] < 0))
    if not alike.any(axis=0).all():
        raise Irregular("no two units refer alike")
    from_middle = np.abs(np.arange(len(alike)) - (len(alike) - 1) / 2)[:, None]
    centre = np.argmin(np.where(alike, from_middle, np.inf), axis=0)
    chosen = (centre, np.arange(table.shape[1]))
    direction = np.where(piece[chosen] < 0, 0, by[chosen])
    same = alike & ((by == direction) | (piece[1:] < 0))
    pairs = np.arange(len(same))[:, None]
    breaks_before = np.where(~same & (pairs < centre), pairs, -1).max(axis=0)
    breaks_after = np.where(~same & (pairs > centre), pairs, len(same)).min(axis=0)
    return _Rule(direction, centre, breaks_before + 1, breaks_after)
