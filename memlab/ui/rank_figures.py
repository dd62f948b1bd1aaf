"""Several ranks as data: a lane for each in one optimizer step, and the memory of each."""

from collections.abc import Iterable, Iterator

import numpy as np

from memlab.events import StepCommunication
from memlab.trace import CATEGORIES
from memlab.ui.palette import CATEGORY_COLOURS, NEUTRAL, category_label
from memlab.ui.rank_record import RankRecord
from memlab.ui.scale import scale_for
from memlab.ui.spec import Figure, Series, Table
from memlab.units import format_bytes

ROWS = {
    "forward": ("forward (top of a lane)", "#8073AC", 0.14, 0.40),
    "backward": ("backward (middle)", "#B8568F", -0.13, 0.13),
    "all-reduce": (
        "all-reduce of gradients (bottom)",
        CATEGORY_COLOURS["communication_buffers"],
        -0.40,
        -0.14,
    ),
    "reduce-scatter": (
        "reduce-scatter of gradients (below)",
        CATEGORY_COLOURS["communication_buffers"],
        -0.26,
        -0.14,
    ),
    "all-gather": ("all-gather of weights (bottom)", CATEGORY_COLOURS["parameters"], -0.40, -0.28),
    "optimizer": ("optimizer step (top and middle)", NEUTRAL, -0.13, 0.40),
}
"""Name, colour, and lower and upper edge within a lane of height 1: place tells what colour tells."""
MILLISECONDS = 1e3
LANES_TITLE = "One optimizer step on each rank"
MEMORY_TITLE = "Peak memory of each rank"


def lanes_figure(record: RankRecord | None) -> Figure:
    """Return what each rank did and when, in the last optimizer step that all ranks have told."""
    step = record.last_step if record is not None else ()
    start = min((begin for rank in step for *_, begin, _ in rank.phases), default=0.0)
    length = max((end for rank in step for *_, end in _spans(rank)), default=0.0) - start
    return Figure(
        title=LANES_TITLE,
        note=_lanes_note(record),
        x_label="milliseconds since the first rank began the step",
        y_label="",
        series=tuple(_blocks(kind, step, start) for kind in ROWS if _of_kind(kind, step)),
        lanes=tuple(f"rank {rank.rank}" for rank in reversed(step)),
        x_range=(0.0, length * MILLISECONDS) if step else None,
        y_range=(-0.5, len(step) - 0.5) if step else None,
        table=_lanes_table(step),
    )


def _lanes_note(record: RankRecord | None) -> str:
    if record is None or not record.last_step:
        return "after the first step"
    return f"step {record.last_step[0].step + 1}, all on the machine's clock, metering included"


def _spans(rank: StepCommunication) -> Iterator[tuple[str, int, float, float]]:
    yield from rank.phases
    exchanges = {
        "all-reduce": rank.all_reduces,
        "reduce-scatter": rank.reduce_scatters,
        "all-gather": rank.all_gathers,
    }
    for kind, spans in exchanges.items():
        for span in spans:
            yield (kind, *span)


def _of_kind(kind: str, step: Iterable[StepCommunication]) -> list[tuple[int, float, float]]:
    """Return (place in `step`, begin, end) of each span of `kind`."""
    return [
        (place, begin, end)
        for place, rank in enumerate(step)
        for found, _, begin, end in _spans(rank)
        if found == kind
    ]


def _blocks(kind: str, step: tuple[StepCommunication, ...], start: float) -> Series:
    """Return a rectangle for each span, four corners and a gap; rank 0 has the highest lane."""
    name, colour, low, high = ROWS[kind]
    x, y = [], []
    for place, begin, end in _of_kind(kind, step):
        left, right = ((edge - start) * MILLISECONDS for edge in (begin, end))
        lane = len(step) - 1 - place
        x += [left, right, right, left, np.nan]
        y += [lane + low, lane + low, lane + high, lane + high, np.nan]
    return Series(name=name, x=np.array(x[:-1]), y=np.array(y[:-1]), colour=colour, kind="block")


def _lanes_table(step: tuple[StepCommunication, ...]) -> Table:
    shared = any(sum(rank.gathers) for rank in step)
    kinds = (
        "forward",
        "backward",
        *(("reduce-scatter", "all-gather") if shared else ("all-reduce",)),
        "optimizer",
    )
    return Table(
        caption=f"Milliseconds on each rank in step {step[0].step + 1}"
        if step
        else "Milliseconds on each rank",
        header=("rank", *kinds[:-1], "optimizer step"),
        rows=tuple((f"rank {rank.rank}", *(_milliseconds(kind, rank) for kind in kinds)) for rank in step),
    )


def _milliseconds(kind: str, rank: StepCommunication) -> str:
    if kind == "all-reduce":  # several may be under way at once
        return f"{rank.seconds * MILLISECONDS:.1f}"
    return f"{sum(end - begin for _, begin, end in _of_kind(kind, [rank])) * MILLISECONDS:.1f}"


def rank_memory_figure(record: RankRecord | None) -> Figure:
    """Return each rank's largest instant so far as a stacked bar."""
    peaks = dict(sorted(record.peaks.items())) if record is not None else {}
    scale = scale_for(max(map(sum, peaks.values()), default=0))
    names = tuple(f"rank {rank}" for rank in peaks)
    sizes = dict(zip(CATEGORIES, np.array([*peaks.values()]).T, strict=True)) if peaks else {}
    bars = [
        Series(name=category_label(name), x=names, y=sizes[name] / scale.unit, colour=colour, kind="bar")
        for name, colour in CATEGORY_COLOURS.items()
        if name in sizes and sizes[name].any()
    ]
    return Figure(
        title=MEMORY_TITLE,
        note="live tensors, measured; colours as above",
        x_label="",
        y_label=scale.name,
        series=tuple(bars),
        legend=False,
        y_range=(0.0, max(map(sum, peaks.values())) / scale.unit * 1.08) if peaks else None,
        table=_memory_table(peaks),
    )


def _memory_table(peaks: dict[int, tuple[int, ...]]) -> Table:
    rows = [
        (category_label(name), *map(format_bytes, sizes))
        for name, sizes in zip(CATEGORIES, zip(*peaks.values(), strict=True), strict=False)
        if any(sizes)
    ]
    total = ("all", *(format_bytes(sum(sizes)) for sizes in peaks.values()))
    return Table(
        caption="Live bytes at the largest instant of each rank so far",
        header=("category", *(f"rank {rank}" for rank in peaks)),
        rows=(*rows, total) if peaks else (),
    )
