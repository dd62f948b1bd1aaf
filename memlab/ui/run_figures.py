"""Figures over whole runs, as data: loss, peak of each run, peak of each step, loss scale."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from memlab.ui.palette import CATEGORY_COLOURS, INK, NEUTRAL, category_label, line_style
from memlab.ui.records import Record
from memlab.ui.scale import scale_for
from memlab.ui.spec import Figure, Series, Table
from memlab.ui.thinning import thin
from memlab.units import format_bytes, signed_bytes

TABLE_ROWS = 30
"""Rows of a table that tells a long series; evenly spaced, first and last included."""


def loss_figure(records: Sequence[Record]) -> Figure:
    """Return the loss over samples seen of each run; the first is the run that goes on."""
    return Figure(
        title="Loss over samples seen",
        note="mean per item",
        x_label="samples seen",
        y_label="loss (nats)",
        series=_lines(records, lambda record: record.samples_seen, lambda record: record.losses),
        table=_loss_table(records[0] if records else None),
    )


def step_peaks_figure(records: Sequence[Record]) -> Figure:
    """Return the peak of each optimizer step of each run, with the allocator's lines of the first on a GPU."""
    scale = scale_for(max((_largest(record) for record in records), default=0))
    series = _lines(
        records, lambda r: _from_one(r.step_peaks), lambda r: [*r.step_peaks.values()], scale.unit
    )
    if records and _has_cache(records[0]):
        series += tuple(
            _line(name, _from_one(sizes), [*sizes.values()], (NEUTRAL, dash), scale.unit)
            for name, sizes, dash in (
                ("allocated", records[0].allocated, "dash"),
                ("reserved", records[0].reserved, "dot"),
            )
        )
    figure = Figure(
        title="Peak of each optimizer step",
        x_label="optimizer step",
        y_label=scale.name,
        series=series,
        whole_x=True,
        table=_step_peaks_table(records[0] if records else None),
    )
    return _from_zero(figure)


def loss_scale_figure(records: Sequence[Record]) -> Figure:
    """Return the loss scale of each optimizer step, of the runs that have one."""
    scaled = [record for record in records if record.loss_scales]
    return Figure(
        title="Loss scale",
        note="of the FP16 scaler; it halves when a step overflows",
        x_label="optimizer step",
        y_label="scale (logarithmic)",
        series=_lines(scaled, lambda r: range(1, len(r.loss_scales) + 1), lambda r: r.loss_scales),
        log_y=True,
        whole_x=True,
        table=_loss_scale_table(scaled[0] if scaled else None),
    )


def run_peaks_figure(records: Sequence[Record]) -> Figure:
    """Return the largest instant of each run as stacked bars, in the order of `records`.

    A tick across a bar is the peak that was predicted for that run.
    """
    known = [record for record in records if record.peak is not None]
    scale = scale_for(max((record.peak.total for record in known), default=0))
    ticks = _predicted_ticks(known, scale.unit)
    figure = Figure(
        title="Peak of each run",
        note=f"colours as above{'; ticks: predicted' if ticks else ''}",
        legend=False,
        x_label="run",
        y_label=scale.name,
        series=(*_bars(known, scale.unit), *ticks),
        table=peaks_table(known),
    )
    return _from_zero(figure)


def _bars(known: Sequence[Record], unit: int) -> list[Series]:
    return [
        Series(
            name=category_label(category),
            x=tuple(record.letter for record in known),
            y=bar_heights(known, category, unit),
            colour=colour,
            kind="bar",
        )
        for category, colour in CATEGORY_COLOURS.items()
        if any(record.peak[category] for record in known)
    ]


def _predicted_ticks(known: Sequence[Record], unit: int) -> list[Series]:
    foretold = [record for record in known if record.predicted_peak is not None]
    if not foretold:
        return []
    heights = np.array([record.predicted_peak / unit for record in foretold])
    letters = tuple(record.letter for record in foretold)
    return [Series(name="predicted", x=letters, y=heights, colour=INK, kind="tick")]


def bar_heights(records: Sequence[Record], category: str, unit: int) -> np.ndarray:
    """Return the height of each run's `category` bar, in `unit` bytes."""
    return np.array([record.peak[category] / unit for record in records])


def peaks_table(records: Sequence[Record]) -> Table:
    """Return each run's peak, how far it is from the prediction, and its share of the first run's."""
    known = [record for record in records if record.peak is not None]
    scale = scale_for(max((record.peak.total for record in known), default=0))
    first = known[0].peak.total or 1 if known else 1
    of_first = f"of {known[0].letter}" if known else "share"
    return Table(
        caption="Peak of each run (micro-batch x K), what was predicted for it, measured minus predicted, and "
        "its share of the first run's",
        header=("run", scale.name, "predicted", "difference", of_first),
        rows=tuple(
            (
                record.label,
                f"{record.peak.total / scale.unit:.1f}",
                "-" if record.predicted_peak is None else f"{record.predicted_peak / scale.unit:.1f}",
                "-" if record.difference is None else signed_bytes(record.difference),
                f"{record.peak.total / first:.0%}",
            )
            for record in known
        ),
    )


def _lines(
    records: Sequence[Record],
    x: Callable[[Record], Sequence[float]],
    y: Callable[[Record], Sequence[float]],
    unit: int = 1,
) -> tuple[Series, ...]:
    return tuple(
        _line(
            f"{'pinned' if number else 'now'}: {record.label}", x(record), y(record), line_style(number), unit
        )
        for number, record in enumerate(records)
        if len(y(record))
    )


def _line(name: str, x: Sequence[float], y: Sequence[float], style: tuple[str, str], unit: int = 1) -> Series:
    heights = np.asarray(y, float) / unit
    kept = thin(heights)
    return Series(name=name, x=np.asarray(x, float)[kept], y=heights[kept], colour=style[0], dash=style[1])


def _from_one(by_step: Mapping[int, int]) -> list[int]:
    return [step + 1 for step in by_step]


def _largest(record: Record) -> int:
    return max(max(record.reserved.values(), default=0), max(record.step_peaks.values(), default=0))


def _has_cache(record: Record) -> bool:
    """Tell whether the allocator rounds or keeps memory: on a GPU; on the CPU the lines would coincide."""
    return any(size != record.step_peaks[step] for step, size in record.reserved.items())


def _from_zero(figure: Figure) -> Figure:
    return replace(figure, y_range=(0.0, figure.top * 1.08)) if figure.top else figure


def _spread(length: int) -> list[int]:
    return sorted(set(np.linspace(0, length - 1, min(length, TABLE_ROWS)).astype(int).tolist()))


def _loss_table(record: Record | None) -> Table:
    rows = [] if record is None else _spread(len(record.losses))
    return Table(
        caption=f"Loss of run {record.label}" if record else "Loss",
        header=("optimizer step", "samples seen", "loss"),
        rows=tuple((str(i + 1), str(record.samples_seen[i]), f"{record.losses[i]:.4f}") for i in rows),
    )


def _step_peaks_table(record: Record | None) -> Table:
    steps = [] if record is None else [*record.step_peaks]
    columns = (record.step_peaks, record.allocated, record.reserved) if record else ()
    return Table(
        caption=f"Peak of each optimizer step of run {record.label}" if record else "Peak of each step",
        header=("optimizer step", "live tensors", "allocated", "reserved"),
        rows=tuple(
            (
                str(steps[i] + 1),
                *(format_bytes(c[steps[i]]) if steps[i] in c else "not sent" for c in columns),
            )
            for i in _spread(len(steps))
        ),
    )


def _loss_scale_table(record: Record | None) -> Table:
    rows = [] if record is None else _spread(len(record.loss_scales))
    return Table(
        caption=f"Loss scale of run {record.label}" if record else "Loss scale",
        header=("optimizer step", "loss scale"),
        rows=tuple((str(i + 1), f"{record.loss_scales[i]:g}") for i in rows),
    )
