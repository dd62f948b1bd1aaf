"""Several ranks as data: a lane for each in one optimizer step, their memory, and what they exchanged."""

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
    "optimizer": ("optimizer step (top and middle)", NEUTRAL, -0.13, 0.40),
}
"""Name, colour, and lower and upper edge within a lane of height 1: place tells what colour tells."""
MILLISECONDS = 1e3
LANES_TITLE = "One optimizer step on each rank"
MEMORY_TITLE = "Peak memory of each rank"
EXCHANGES_TITLE = "Gradients exchanged in one optimizer step"
SHOWN_MICRO_STEPS = 16
"""Of a table; the totals count them all."""


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
    uncounted = "" if record.counted else "; FSDP2 has no hook that shows its exchanges"
    return f"step {record.last_step[0].step + 1}, all on the machine's clock, metering included{uncounted}"


def _spans(rank: StepCommunication) -> Iterator[tuple[str, int, float, float]]:
    yield from rank.phases
    for micro_step, begin, end in rank.all_reduces:
        yield ("all-reduce", micro_step, begin, end)


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
    return Table(
        caption=f"Milliseconds on each rank in step {step[0].step + 1}"
        if step
        else "Milliseconds on each rank",
        header=("rank", "forward", "backward", "all-reduce", "optimizer step"),
        rows=tuple((f"rank {rank.rank}", *(_milliseconds(kind, rank) for kind in _COLUMNS)) for rank in step),
    )


_COLUMNS = ("forward", "backward", "all-reduce", "optimizer")


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


def exchanges_figure(record: RankRecord | None) -> Figure:
    """Return the bytes of gradients that rank 0 handed over in each micro-step of the last step."""
    first = record.last_step[0] if record is not None and record.last_step else None
    shown = first if first is not None and record.counted else None
    scale = scale_for(max(shown.bytes, default=0) if shown else 0)
    bars = () if shown is None else (_exchange_bars(shown, scale.unit),)
    return Figure(
        title=EXCHANGES_TITLE,
        note=exchange_words(record),
        x_label="micro-step",
        y_label=scale.name,
        series=bars,
        legend=False,
        y_range=(0.0, (max(shown.bytes) / scale.unit or 1.0) * 1.08) if shown else None,
        table=_exchanges_table(record if shown else None),
    )


def _exchange_bars(rank: StepCommunication, unit: int) -> Series:
    return Series(
        name="gradients handed over",
        x=tuple(str(number + 1) for number in range(len(rank.bytes))),
        y=np.array(rank.bytes) / unit,
        colour=CATEGORY_COLOURS["communication_buffers"],
        kind="bar",
    )


def exchange_words(record: RankRecord | None) -> str:
    """Say how often and how much each rank exchanged in the last step."""
    if record is None or not record.last_step:
        return "after the first step"
    if not record.counted:
        return "not counted: FSDP2 has no communication hook"
    first = record.last_step[0]
    calls = sum(first.calls)
    plural = "" if calls == 1 else "s"
    return (
        f"step {first.step + 1}: {calls} all-reduce{plural} of {format_bytes(sum(first.bytes))} together on each "
        f"rank, in {len(first.calls)} micro-step{'' if len(first.calls) == 1 else 's'}"
    )


def weights_words(record: RankRecord | None) -> str:
    """Say whether the ranks still hold the same weights."""
    match record.alike if record is not None else None:
        case True:
            return "Weights after it: the same on all ranks (equal checksums)."
        case False:
            return "Weights after it: different on each rank (checksums differ). The ranks drift apart."
        case _:
            return "Weights after it: not compared; each rank holds a share."


def _exchanges_table(record: RankRecord | None) -> Table:
    step = record.last_step if record is not None else ()
    micro_steps = len(step[0].calls) if step else 0
    rows = [
        (str(number + 1), str(step[0].calls[number]), format_bytes(step[0].bytes[number]))
        for number in range(min(micro_steps, SHOWN_MICRO_STEPS))
    ]
    if micro_steps > SHOWN_MICRO_STEPS:
        rows.append(("more", "", ""))
    total = [("all", str(sum(step[0].calls)), format_bytes(sum(step[0].bytes)))] if step else []
    buckets = [("buckets", str(len(step[0].buckets)), _sizes(step[0].buckets))] if step else []
    return Table(
        caption="All-reduces and bytes of gradients in each micro-step, as rank 0 counted them",
        header=("micro-step", "all-reduces", "bytes"),
        rows=(*rows, *total, *buckets),
    )


def _sizes(buckets: tuple[int, ...]) -> str:
    return ", ".join(map(format_bytes, buckets[:4])) + (", ..." if len(buckets) > 4 else "") or "none sent"
