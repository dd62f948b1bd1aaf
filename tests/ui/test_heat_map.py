"""The heat map says what predict says, draws each card's limit where it is, and never holds the kernel."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from memlab import Plan, PlanError, predict
from memlab.memory.cards import CardError, card
from memlab.ui.charts import chart
from memlab.ui.heat_map import HeatMap, HeatMapError
from memlab.ui.heat_map_figure import WAITS, Grid, available_bytes, heat_map_figure
from memlab.units import GiB

GRID = Grid(
    micro_batch_sizes=(1, 2, 4), sequence_lengths=(256, 512), cards=(card("rtx-4090"), card("a100-80gb"))
)
PEAKS = {
    (size, length): 8 * GiB * size * length // 256
    for size in GRID.micro_batch_sizes
    for length in GRID.sequence_lengths
}
SMALL = {
    "model": "gpt-tiny",
    "cards": ("t4", "a100-80gb"),
    "micro_batch_sizes": (1, 2),
    "sequence_lengths": (16, 32),
}


@pytest.fixture(scope="module")
def shown() -> Iterator[HeatMap]:
    """Give all tests one map, for a process takes seconds to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMLAB_CHARTS", "image")
        heat_map = HeatMap(**SMALL)
    yield heat_map
    heat_map.close()


def test_a_cards_line_parts_what_fits_it_from_what_does_not() -> None:
    figure = heat_map_figure(GRID, PEAKS, "a plan")

    for series, each in zip(figure.series, GRID.cards, strict=True):
        for row, length in enumerate(GRID.sequence_lengths):
            left = {round(place) for place in series.x[2 * row : 2 * row + 2] + 0.49}
            fitting = [PEAKS[size, length] <= available_bytes(each) for size in GRID.micro_batch_sizes]
            assert left == {sum(fitting)}


def test_the_table_tells_every_cell_and_every_line() -> None:
    table = heat_map_figure(GRID, PEAKS, "a plan").table

    assert table.rows == (
        ("256", "8.0 GiB", "16.0 GiB", "32.0 GiB", "2", "4"),
        ("512", "16.0 GiB", "32.0 GiB", "64.0 GiB", "1", "4"),
    )
    assert "predicted" in table.caption and "a plan" in table.caption


def test_what_is_not_known_yet_is_left_open() -> None:
    figure = heat_map_figure(GRID, {(1, 256): GiB, (2, 256): 60 * GiB}, "a plan")

    assert np.isnan(figure.heat.shades).sum() == 4
    assert figure.table.rows == (
        ("256", "1.0 GiB", "60.0 GiB", WAITS, "1", WAITS),
        ("512", WAITS, WAITS, WAITS, WAITS, WAITS),
    )
    assert np.isnan(figure.series[1].x).all() and not np.isnan(figure.series[0].x[:2]).any()


@pytest.mark.parametrize("backend", ["plotly", "image", "none"])
@pytest.mark.parametrize("peaks", [PEAKS, {}], ids=["all", "none yet"])
def test_every_back_end_draws_it(backend: Any, peaks: dict) -> None:
    drawn = chart(backend, 200)
    drawn.draw(heat_map_figure(GRID, peaks, "a plan"))

    if backend == "plotly":
        heat, *lines = drawn.view.traces
        assert heat["type"] == "heatmap" and len(lines) == (2 if peaks else 0)
        assert drawn.view.look["xaxis"]["ticktext"] == ["1", "2", "4"]
    elif backend == "image":
        assert bytes(drawn.widget.value[:4]) == b"\x89PNG"


def test_it_fills_while_the_kernel_does_other_things(shown: HeatMap) -> None:
    begin = time.perf_counter()
    bundle = shown._repr_mimebundle_()
    seconds = time.perf_counter() - begin

    assert bundle["text/plain"] == "memlab heat map: run this cell to use it"
    assert WAITS in bundle["text/html"] and seconds < 1  # a prediction alone loads torch for longer
    until = time.monotonic() + 60
    while len(shown.peaks) < 4 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(shown.peaks) == 4 and shown.last_error is None


def test_a_cell_is_what_predict_says_by_the_largest_cards_kernels(shown: HeatMap) -> None:
    peaks = shown.compute(precision="bf16-mixed", dropout=0.1)

    for (size, length), peak in peaks.items():
        plan = Plan(
            model="gpt-tiny",
            precision="bf16-mixed",
            dropout=0.1,
            micro_batch_size=size,
            sequence_length=length,
            gradient_accumulation_steps=2,
            steps=2,
        )
        assert peak == predict(plan, card="a100-80gb").peak_reserved
    assert len(peaks) == 4 and shown.figure.table.rows[0][0] == "16"


def test_a_process_that_dies_is_told_and_the_next_setting_starts_another(shown: HeatMap) -> None:
    shown._pump.close()
    shown._choices.set({"optimizer": "sgd"})
    shown._changed()
    shown._tick()
    os.kill(shown._predictor.pid, signal.SIGTERM)

    with pytest.raises(HeatMapError, match="The predicting process died"):
        shown.compute()
    assert len(shown.compute()) == 4 and shown.last_error is None


@pytest.mark.parametrize(
    ("fields", "kind", "sentence"),
    [
        ({"model": "mlp"}, PlanError, "model='mlp' reads no text, so it has no sequence length to map."),
        (
            {"micro_batch_size": 2},
            PlanError,
            "micro_batch_size=2 does not go with a heat map, which decides it: name micro_batch_sizes, "
            "sequence_lengths and cards.",
        ),
        (
            {"cards": ()},
            ValueError,
            "cards, micro_batch_sizes and sequence_lengths must each name one at least.",
        ),
        ({"dropout": 2}, PlanError, "dropout=2 must be a number from 0 up to, not including, 1."),
        ({"cards": ("a100",)}, CardError, "card='a100' is not in the table; choose a100-40gb or a100-80gb."),
        (
            {"model": "gpt2", "sequence_lengths": (2048,)},
            PlanError,
            "sequence_lengths=(2048,) are all longer than model='gpt2' has positions for: name one of 1024 or less.",
        ),
    ],
)
def test_what_cannot_be_mapped_is_refused(fields: dict, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind) as error:
        HeatMap(**{**SMALL, **fields})

    assert str(error.value) == sentence
