"""Figures are data: what they show follows from events and runs alone."""

from dataclasses import replace

import numpy as np
import pytest
from hand_made import memory_event, prediction, record

from memlab.events import Finished
from memlab.plan import Plan
from memlab.trace import CATEGORIES
from memlab.ui.html import error_html, legend_html, table_html
from memlab.ui.memory_figure import memory_figure
from memlab.ui.palette import CATEGORY_COLOURS, line_style
from memlab.ui.plotly_chart import MARGIN, _look
from memlab.ui.records import describe
from memlab.ui.run_figures import loss_figure, loss_scale_figure, run_peaks_figure, step_peaks_figure
from memlab.ui.spec import Figure
from memlab.ui.thinning import thin
from memlab.ui.words import progress_words
from memlab.units import MiB


def test_every_category_has_a_colour() -> None:
    assert set(CATEGORY_COLOURS) == set(CATEGORIES)
    assert len(set(CATEGORY_COLOURS.values())) == len(CATEGORIES)


def test_thirty_lines_differ_in_colour_or_dash() -> None:
    assert len({line_style(number) for number in range(30)}) == 30
    assert line_style(0)[1] == "solid"
    assert all(line_style(number)[1] != "solid" for number in range(1, 6))


def test_the_stack_adds_up_to_the_peak_where_the_mark_is() -> None:
    event = memory_event()

    figure = memory_figure(event, steps=3)

    height = sum(series.y[int(event.peak_position)] for series in figure.series)
    assert height == figure.mark.y == 18.0
    assert figure.mark.text == "peak 18.0 MiB: forward 1"
    assert figure.y_label == "MiB"
    assert figure.y_range[1] > figure.mark.y
    assert [series.name for series in figure.series] == ["parameters", "activations"]


def test_phases_are_named_and_shaded_in_turn() -> None:
    figure = memory_figure(memory_event(micro_steps=2))

    assert [span.label for span in figure.spans] == ["F1", "B1", "F2", "B2"]
    assert [span.shaded for span in figure.spans] == [False, True, False, True]


def test_phases_too_narrow_for_names_are_told_in_words() -> None:
    figure = memory_figure(memory_event(micro_steps=32))

    assert not any(span.label for span in figure.spans)
    assert "32 micro-steps: white forward, shaded backward" in figure.note


def test_the_allocators_lines_are_drawn_where_it_keeps_more_than_tensors_hold() -> None:
    cpu, gpu = memory_figure(memory_event()), memory_figure(memory_event(reserved=40 * MiB))

    assert not [series.name for series in cpu.series if series.kind == "line"]
    lines = [series for series in gpu.series if series.kind == "line"]
    assert [series.name for series in lines] == ["peak allocated 18.0 MiB", "reserved 40.0 MiB"]
    assert lines[0].dash != lines[1].dash
    assert gpu.y_range[1] > 40


def test_before_the_first_step_the_memory_figure_says_what_to_do() -> None:
    figure = memory_figure(None)

    assert (figure.note, figure.series) == ("press Run", ())
    assert "Nothing yet: press Run." in table_html(figure.table)


def test_the_run_that_goes_on_is_solid_and_pinned_ones_are_not() -> None:
    figure = loss_figure([record("B"), record("A")])

    assert [series.name for series in figure.series] == ["now: B 8 x 2 fp32", "pinned: A 8 x 2 fp32"]
    assert [series.dash for series in figure.series] == ["solid", "dash"]
    np.testing.assert_array_equal(figure.series[0].x, [16, 32, 48])
    np.testing.assert_array_equal(figure.series[0].y, [5, 4, 3])


def test_runs_of_equal_samples_lie_on_one_axis_whatever_their_batch() -> None:
    small = record("A", steps=4, samples=8)
    for number in range(4):
        small.samples_seen[number] = 8 * (number + 1)

    figure = loss_figure([record("B", steps=2), small])

    assert figure.series[0].x[-1] == figure.series[1].x[-1] == 32


def test_bars_stack_to_the_peak_of_each_run() -> None:
    figure = run_peaks_figure([record("A"), record("B")])

    np.testing.assert_array_equal(np.sum([series.y for series in figure.series], axis=0), [18, 18])
    assert figure.table.header == ("run", "MiB", "predicted", "difference", "of A")
    assert figure.table.rows == (
        ("A 8 x 2 fp32", "18.0", "-", "-", "100%"),
        ("B 8 x 2 fp32", "18.0", "-", "-", "100%"),
    )


def test_peaks_of_steps_whose_curve_was_dropped_are_drawn_all_the_same() -> None:
    made = record(steps=0)
    made.add(replace(memory_event(step=2), earlier_peaks=((0, 10 * MiB), (1, 12 * MiB))))

    figure = step_peaks_figure([made])

    np.testing.assert_array_equal(figure.series[0].x, [1, 2, 3])
    np.testing.assert_array_equal(figure.series[0].y, [10, 12, 18])


def test_the_loss_scale_is_drawn_for_runs_that_have_one() -> None:
    with_scaler = record("B", loss_scale=65536.0)

    figure = loss_scale_figure([record("A"), with_scaler])

    assert [series.name for series in figure.series] == ["now: B 8 x 2 fp32"]
    assert figure.log_y
    assert figure.table.rows[0] == ("1", "65536")


@pytest.mark.parametrize("length", [3, 2000, 2001, 50_000])
def test_thinning_keeps_ends_order_and_every_extreme(length: int) -> None:
    y = np.sin(np.arange(length) / 7)
    y[length // 2], y[length // 3] = 99, -99

    kept = thin(y)

    assert len(kept) <= 2000
    assert (kept[0], kept[-1]) == (0, length - 1)
    assert (np.diff(kept) > 0).all()
    assert (y[kept].max(), y[kept].min()) == (y.max(), y.min())


def test_thinning_survives_nan() -> None:
    y = np.full(10_000, np.nan)
    y[77] = 1.0

    assert np.nanmax(y[thin(y)]) == 1.0


def test_every_text_is_escaped() -> None:
    evil = record()
    evil.name = "<script>alert(1)</script>"

    html = table_html(run_peaks_figure([evil]).table) + legend_html(loss_figure([evil]))

    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<b>x" not in error_html("<b>x", "<b>x")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "8 x 1 fp32"),
        ({"gradient_accumulation_steps": 4, "precision": "bf16-mixed"}, "8 x 4 bf16-mixed"),
        ({"activation_checkpointing": "every-2"}, "8 x 1 fp32 ckpt every-2"),
        ({"model": "mlp", "norm": "batch", "optimizer": "sgd"}, "mlp 8 x 1 fp32 sgd batch"),
    ],
)
def test_a_run_is_called_by_what_sets_it_apart(fields: dict[str, object], words: str) -> None:
    assert describe(Plan(**fields)) == words


def test_a_step_that_was_stopped_is_told_in_words_and_held_against_nothing() -> None:
    broken = record("A", steps=1)
    broken.prediction = prediction(broken.plan).run
    peak = replace(broken.peak, step=1)
    broken.add(Finished(run=replace(broken.prediction, peak=peak), stopped=True))

    figure = run_peaks_figure([broken])

    assert figure.table.rows == (("A 8 x 2 fp32, stopped inside step 2", "18.0", "-", "-", "100%"),)
    assert not any(series.kind == "tick" for series in figure.series)
    assert progress_words(broken).endswith("peak 18.0 MiB (stopped inside step 2, so not compared)")


def test_a_run_that_was_stopped_inside_its_first_step_says_so() -> None:
    broken = record("A", steps=0)
    broken.add(Finished(run=prediction(broken.plan).run, stopped=True))

    assert progress_words(broken) == "peak 18.0 MiB (stopped inside step 1, so not compared)"


def test_the_name_of_the_peak_stands_above_all_that_is_drawn() -> None:
    figure = memory_figure(memory_event())
    low = replace(figure, mark=replace(figure.mark, y=figure.top / 2))

    def height(figure: Figure) -> float:
        """Return where the name begins, in pixels above the ground."""
        look = _look(figure, 236)
        pixels = (236 - MARGIN["t"] - MARGIN["b"]) / figure.y_range[1]
        return figure.mark.y * pixels - look["annotations"][-1]["ay"]

    assert height(low) == pytest.approx(height(figure))
