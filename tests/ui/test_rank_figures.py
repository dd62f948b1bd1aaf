"""What the bench shows of several ranks follows from what they said alone."""

import numpy as np
import pytest

from memlab.events import StepCommunication
from memlab.plan import Plan
from memlab.trace import CATEGORIES
from memlab.ui.card import Card
from memlab.ui.charts import Backend
from memlab.ui.html import legend_html, table_html
from memlab.ui.rank_exchanges import SHOWN_MICRO_STEPS, exchanges_figure, weights_words
from memlab.ui.rank_figures import lanes_figure, rank_memory_figure
from memlab.ui.rank_record import RankRecord
from memlab.units import MiB

TWO = Plan(model="mlp", gradient_accumulation_steps=2, world_size=2)
SIZES = {"parameters": 2 * MiB, "gradients": MiB, "communication_buffers": MiB}


def said(rank: int, step: int = 0, **changes: object) -> StepCommunication:
    """Return what a rank says of a step of two micro-steps, 10 ms each phase, begun a millisecond later a rank."""
    at = 100.0 + rank / 1000
    phases = [
        ("forward", 0, at, at + 0.010),
        ("backward", 0, at + 0.010, at + 0.020),
        ("forward", 1, at + 0.020, at + 0.030),
        ("backward", 1, at + 0.030, at + 0.040),
        ("optimizer", 0, at + 0.040, at + 0.050),
    ]
    values = {
        "step": step, "rank": rank, "calls": (0, 1), "bytes": (0, MiB), "buckets": (MiB,), "rebuilt": False,
        "seconds": 0.004, "all_reduces": ((1, at + 0.034, at + 0.038),), "phases": tuple(phases), "checksum": 7,
        "peak_by_category": tuple(SIZES.get(name, 0) for name in CATEGORIES),
    }  # fmt: skip
    return StepCommunication(**{**values, **changes})


def record(plan: Plan = TWO, **changes: object) -> RankRecord:
    """Return a record of two ranks that have told one step."""
    made = RankRecord(plan)
    for rank in (0, 1):
        made.add(said(rank, **changes))
    return made


def test_a_step_is_drawn_once_every_rank_has_told_it() -> None:
    made = RankRecord(TWO)
    made.add(said(0, step=0))
    assert made.last_step == ()
    made.add(said(0, step=1))
    made.add(said(1, step=0))

    assert [(rank.rank, rank.step) for rank in made.last_step] == [(0, 0), (1, 0)]

    made.add(said(1, step=1))
    assert [(rank.rank, rank.step) for rank in made.last_step] == [(0, 1), (1, 1)]


def test_each_rank_keeps_its_largest_instant() -> None:
    made = RankRecord(TWO)
    small = tuple(size // 2 for size in said(0).peak_by_category)
    made.add(said(0, step=0, peak_by_category=small))
    made.add(said(0, step=1))
    made.add(said(0, step=2, peak_by_category=small))

    assert made.peaks == {0: said(0).peak_by_category}


def test_every_span_is_a_block_in_its_ranks_lane_on_one_clock() -> None:
    figure = lanes_figure(record())

    forward, backward, reduced, optimizer = figure.series
    assert figure.lanes == ("rank 1", "rank 0")
    assert [series.kind for series in figure.series] == ["block"] * 4
    # Two micro-steps on two ranks: four corners each, and a gap between two.
    assert len(forward.x) == len(backward.x) == 4 * 5 - 1
    np.testing.assert_allclose(forward.x[:4], [0, 10, 10, 0], atol=1e-9)
    np.testing.assert_allclose(reduced.x[:4], [34, 38, 38, 34], atol=1e-9)
    np.testing.assert_allclose(reduced.x[5:], [35, 39, 39, 35], atol=1e-9)
    assert np.isnan(forward.x[4]) and np.isnan(forward.y[4])
    assert figure.x_range == pytest.approx((0, 51))


def test_place_in_a_lane_tells_what_colour_tells() -> None:
    figure = lanes_figure(record())

    for lane in (1, 0):  # rank 0 has the upper one
        rows = []
        for series in figure.series[:3]:
            heights = series.y[np.abs(series.y - lane) < 0.5]
            rows.append((heights.min(), heights.max()))
        assert rows[0][0] > rows[1][1] > rows[1][0] > rows[2][1], f"{lane=} {rows=}"
    assert len({series.colour for series in figure.series}) == 4
    assert legend_html(figure).index("forward") < legend_html(figure).index("all-reduce")


def test_the_lanes_have_a_twin_in_words() -> None:
    table = lanes_figure(record()).table

    assert table.header == ("rank", "forward", "backward", "all-reduce", "optimizer step")
    assert table.rows[0] == ("rank 0", "20.0", "20.0", "4.0", "10.0")


def test_bars_stack_to_the_peak_of_each_rank() -> None:
    figure = rank_memory_figure(record())

    np.testing.assert_array_equal(np.sum([series.y for series in figure.series], axis=0), [4, 4])
    assert figure.series[0].x == ("rank 0", "rank 1")
    assert figure.table.rows[-1] == ("all", "4.0 MiB", "4.0 MiB")
    assert ("gradients", "1.0 MiB", "1.0 MiB") in figure.table.rows


def test_the_counts_are_said_step_by_step_and_together() -> None:
    figure = exchanges_figure(record())

    assert figure.note == "step 1: 1 all-reduce of 1.0 MiB together on each rank, in 2 micro-steps"
    np.testing.assert_array_equal(figure.series[0].y, [0, 1])
    assert figure.table.rows == (
        ("1", "0", "0 B"),
        ("2", "1", "1.0 MiB"),
        ("all", "1", "1.0 MiB"),
        ("buckets", "1", "1.0 MiB"),
    )


def test_the_totals_count_micro_steps_that_the_table_leaves_out() -> None:
    figure = exchanges_figure(record(calls=(1,) * 40, bytes=(MiB,) * 40))

    assert len(figure.table.rows) == SHOWN_MICRO_STEPS + 3
    assert figure.table.rows[-2] == ("all", "40", "40.0 MiB")


def test_where_nothing_is_exchanged_the_axis_still_begins_at_zero() -> None:
    figure = exchanges_figure(record(calls=(0, 0), bytes=(0, 0), buckets=(), all_reduces=()))

    assert figure.y_range[1] > figure.y_range[0] == 0
    assert figure.table.rows[-1] == ("buckets", "0", "none sent")


@pytest.mark.parametrize(
    ("checksums", "said_of_them"),
    [((7, 7), "the same on all ranks"), ((7, 8), "The ranks drift apart."), ((None, None), "not compared")],
)
def test_equal_weights_are_told_from_drifted_and_unknown_ones(
    checksums: tuple[int | None, ...], said_of_them: str
) -> None:
    made = RankRecord(TWO)
    for rank, checksum in enumerate(checksums):
        made.add(said(rank, checksum=checksum))

    assert said_of_them in weights_words(made)


SHARED = Plan(model="mlp", gradient_accumulation_steps=2, world_size=2, data_parallel="fsdp2")


def of_shares(**changes: object) -> RankRecord:
    """Return a record of two ranks that gathered 3 MiB of weights in each micro-step, in 2 ms a time."""
    at = 100.0
    gathers = tuple((n // 3, at + 0.006 * n, at + 0.006 * n + 0.002) for n in range(6))
    scatters = ((1, at + 0.034, at + 0.038),)
    values = {"gathers": (3, 3), "gathered_bytes": (3 * MiB, 3 * MiB), "all_reduces": (), "checksum": None}
    return record(SHARED, **{**values, "all_gathers": gathers, "reduce_scatters": scatters, **changes})


def test_gathers_and_scatters_are_said_step_by_step_and_together() -> None:
    figure = exchanges_figure(of_shares())

    assert figure.note == (
        "step 1: 1 reduce-scatter of 1.0 MiB of gradients together and 6 all-gathers of 6.0 MiB of weights on each "
        "rank, in 2 micro-steps"
    )
    assert {series.name: series.y.tolist() for series in figure.series} == {
        "gradients handed over": [0, 1],
        "weights gathered": [3, 3],
    }
    assert figure.y_range[1] >= 4
    assert figure.table.header == ("micro-step", "reduce-scatters", "bytes", "all-gathers", "bytes")
    assert figure.table.rows == (
        ("1", "0", "0 B", "3", "3.0 MiB"),
        ("2", "1", "1.0 MiB", "3", "3.0 MiB"),
        ("all", "1", "1.0 MiB", "6", "6.0 MiB"),
    )


def test_gathers_and_scatters_lie_apart_in_a_lane() -> None:
    figure = lanes_figure(of_shares())

    scattered, gathered = figure.series[2:4]
    assert (scattered.name, gathered.name) == (
        "reduce-scatter of gradients (below)",
        "all-gather of weights (bottom)",
    )
    assert np.nanmax(gathered.y[gathered.y < 0.5]) < np.nanmin(scattered.y[scattered.y < 0.5])
    assert len(gathered.x) == 2 * 6 * 5 - 1
    assert figure.table.header == (
        "rank",
        "forward",
        "backward",
        "reduce-scatter",
        "all-gather",
        "optimizer step",
    )
    assert figure.table.rows[0] == ("rank 0", "20.0", "20.0", "4.0", "12.0", "10.0")


def test_before_the_first_step_nothing_is_drawn() -> None:
    for made in (None, RankRecord(TWO)):
        for figure in (lanes_figure(made), rank_memory_figure(made), exchanges_figure(made)):
            assert figure.series == ()
            assert "Nothing yet: press Run." in table_html(figure.table)


@pytest.mark.parametrize("backend", ["plotly", "image", "none"])
@pytest.mark.parametrize("draw", [lanes_figure, rank_memory_figure, exchanges_figure])
@pytest.mark.parametrize("made", [record(), of_shares()], ids=["all weights", "shares"])
def test_every_back_end_draws_the_ranks(backend: Backend, draw: object, made: RankRecord) -> None:
    card = Card("ranks", draw(None), backend, height=190)

    card.draw(draw(made))

    assert card.figure.series
    match backend:
        case "plotly":
            assert len(card.chart.view.traces) == len(card.figure.series)
        case "image":
            assert card.chart.widget.value[:4] == b"\x89PNG"
        case "none":
            assert "<table" in card.table.value
