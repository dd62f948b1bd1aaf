"""What several ranks exchanged in one optimizer step, as data and in words."""

import numpy as np

from memlab.events import StepCommunication
from memlab.ui.palette import CATEGORY_COLOURS
from memlab.ui.rank_record import RankRecord
from memlab.ui.scale import scale_for
from memlab.ui.spec import Figure, Series, Table
from memlab.units import format_bytes

TITLE = "Gradients exchanged in one optimizer step"
TITLE_OF_SHARES = "Gradients and weights exchanged in one optimizer step"
SHOWN_MICRO_STEPS = 16
"""Of a table; the totals count them all."""


def exchanges_figure(record: RankRecord | None) -> Figure:
    """Return the bytes that rank 0 exchanged in each micro-step of the last step."""
    first = record.last_step[0] if record is not None and record.last_step else None
    shared = record is not None and record.shares_weights
    most = max(map(sum, zip(*_bytes(first).values(), strict=True)), default=0) if first else 0
    scale = scale_for(most)
    return Figure(
        title=TITLE_OF_SHARES if shared else TITLE,
        note=exchange_words(record),
        x_label="micro-step",
        y_label=scale.name,
        series=_bars(first, scale.unit) if first else (),
        legend=shared,
        y_range=(0.0, (most / scale.unit or 1.0) * 1.08) if first else None,
        table=_shares_table(first) if first and shared else _gradients_table(first),
    )


def _bytes(rank: StepCommunication) -> dict[str, tuple[int, ...]]:
    """Return the bytes of each micro-step, by what they were."""
    whole = {"weights gathered": rank.gathered_bytes} if sum(rank.gathers) else {}
    return {"gradients handed over": rank.bytes, **whole}


_COLOURS = {
    "gradients handed over": CATEGORY_COLOURS["communication_buffers"],
    "weights gathered": CATEGORY_COLOURS["parameters"],
}


def _bars(rank: StepCommunication, unit: int) -> tuple[Series, ...]:
    micro_steps = tuple(str(number + 1) for number in range(len(rank.bytes)))
    return tuple(
        Series(name=name, x=micro_steps, y=np.array(sizes) / unit, colour=_COLOURS[name], kind="bar")
        for name, sizes in _bytes(rank).items()
    )


def exchange_words(record: RankRecord | None) -> str:
    """Say how often and how much each rank exchanged in the last step."""
    if record is None or not record.last_step:
        return "after the first step"
    first = record.last_step[0]
    micro_steps = _counted(len(first.calls), "micro-step")
    sent = format_bytes(sum(first.bytes))
    if not record.shares_weights:
        calls = _counted(sum(first.calls), "all-reduce")
        return f"step {first.step + 1}: {calls} of {sent} together on each rank, in {micro_steps}"
    calls, gathers = _counted(sum(first.calls), "reduce-scatter"), _counted(sum(first.gathers), "all-gather")
    return (
        f"step {first.step + 1}: {calls} of {sent} of gradients together and {gathers} of "
        f"{format_bytes(sum(first.gathered_bytes))} of weights on each rank, in {micro_steps}"
    )


def _counted(number: int, name: str) -> str:
    """Return a number and what it counts.

    >>> _counted(1, "all-reduce"), _counted(2, "all-reduce")
    ('1 all-reduce', '2 all-reduces')
    """
    return f"{number} {name}{'' if number == 1 else 's'}"


def weights_words(record: RankRecord | None) -> str:
    """Say whether the ranks still hold the same weights."""
    match record.alike if record is not None else None:
        case True:
            return "Weights after it: the same on all ranks (equal checksums)."
        case False:
            return "Weights after it: different on each rank (checksums differ). The ranks drift apart."
        case _:
            return "Weights after it: not compared; each rank holds a share."


def _gradients_table(rank: StepCommunication | None) -> Table:
    counts = ((rank.calls, rank.bytes),) if rank else ()
    buckets = (("buckets", str(len(rank.buckets)), _sizes(rank.buckets)),) if rank else ()
    return Table(
        caption="All-reduces and bytes of gradients in each micro-step, as rank 0 counted them",
        header=("micro-step", "all-reduces", "bytes"),
        rows=(*_rows(*counts), *buckets),
    )


def _shares_table(rank: StepCommunication) -> Table:
    return Table(
        caption="Reduce-scatters of gradients (bytes that rank 0 handed over) and all-gathers of weights (bytes that "
        "were together after them, its own share included) in each micro-step",
        header=("micro-step", "reduce-scatters", "bytes", "all-gathers", "bytes"),
        rows=_rows((rank.calls, rank.bytes), (rank.gathers, rank.gathered_bytes)),
    )


def _rows(*counts: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return a row for each micro-step and one for all; `counts`: calls and bytes of each kind."""
    if not counts:
        return ()
    micro_steps = len(counts[0][0])
    rows = [
        (str(number + 1), *_cells(*((calls[number], sizes[number]) for calls, sizes in counts)))
        for number in range(min(micro_steps, SHOWN_MICRO_STEPS))
    ]
    if micro_steps > SHOWN_MICRO_STEPS:
        rows.append(("more", *[""] * 2 * len(counts)))
    return (*rows, ("all", *_cells(*((sum(calls), sum(sizes)) for calls, sizes in counts))))


def _cells(*counts: tuple[int, int]) -> tuple[str, ...]:
    return tuple(text for calls, size in counts for text in (str(calls), format_bytes(size)))


def _sizes(buckets: tuple[int, ...]) -> str:
    return ", ".join(map(format_bytes, buckets[:4])) + (", ..." if len(buckets) > 4 else "") or "none sent"
