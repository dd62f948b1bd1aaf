"""The ghost: what is predicted is drawn before Run, and stands beside what is measured after it."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hand_made import memory_event, prediction, record

from memlab.engine.client import Worker
from memlab.engine.predictor import Predictor, Question
from memlab.memory.cards import card
from memlab.plan import Plan
from memlab.ui.bench import Bench
from memlab.ui.foresight import alike, budget_bytes
from memlab.ui.ghost import Ghost
from memlab.ui.memory_figure import memory_figure
from memlab.ui.palette import INK
from memlab.ui.run_figures import run_peaks_figure
from memlab.ui.session import Session
from memlab.ui.words import forecast_words, progress_words
from memlab.units import GiB, MiB, signed_bytes

Until = Callable[[Callable[[], object]], None]


def ghost(**changes: object) -> Ghost:
    return Ghost(**{"memory": memory_event(step=1), "name": "8 x 2 fp32", **changes})


# the figures ---------------------------------------------------------------------------------


def test_before_the_first_run_the_prediction_is_drawn_pale_by_category() -> None:
    figure = memory_figure(None, 0, ghost())

    *areas, line = figure.series
    assert [area.name for area in areas] == ["parameters", "activations"]
    assert all(area.faded for area in areas)
    np.testing.assert_array_equal(line.y, np.sum([area.y for area in areas], axis=0))
    assert figure.note.startswith("predicted for 8 x 2 fp32, not run yet")
    assert figure.mark.text == "predicted peak 18.0 MiB: forward 1"
    assert "predicted for 8 x 2 fp32" in figure.table.caption


def test_of_a_run_without_a_whole_step_it_is_not_said_that_it_was_not_run() -> None:
    figure = memory_figure(None, 3, ghost(of_this_run=True))

    assert figure.note.startswith("predicted for 8 x 2 fp32, no whole step measured")


def test_over_its_own_run_the_ghost_tells_the_signed_difference() -> None:
    larger = memory_event(step=1)
    larger = replace(larger, peak={**larger.peak, "total": larger.peak["total"] + 3 * MiB})

    same = memory_figure(memory_event(step=1), 3, ghost(of_this_run=True)).series[-1]
    other = memory_figure(larger, 3, ghost(of_this_run=True)).series[-1]

    assert same.name == "predicted before the run: peak 18.0 MiB; measured - predicted = 0 B"
    assert other.name == "predicted before the run: peak 18.0 MiB; measured - predicted = +3.0 MiB"


def test_the_ghost_lies_over_the_phases_of_the_measured_step() -> None:
    measured, longer = memory_event(), memory_event()
    longer = replace(
        longer,
        position=tuple(3 * place for place in longer.position),
        spans=tuple((phase, number, 3 * first, 3 * last) for phase, number, first, last in longer.spans),
    )

    line = memory_figure(measured, 3, ghost(memory=longer, name="more changes")).series[-1]

    np.testing.assert_allclose(line.x, measured.position)
    assert (line.colour, line.dash, line.stepped) == (INK, "dot", True)
    assert line.name == "ghost: predicted for more changes, peak 18.0 MiB"


def test_a_ghost_of_another_k_spans_the_whole_step() -> None:
    line = memory_figure(memory_event(micro_steps=2), 3, ghost(memory=memory_event(micro_steps=5))).series[-1]

    assert (line.x[0], line.x[-1]) == (0.0, memory_event(micro_steps=2).position[-1])


def test_a_cards_budget_is_drawn_where_it_is_in_range() -> None:
    near, far = (ghost(budget_bytes=size, card="a card") for size in (20 * MiB, 14 * GiB))

    drawn, left_out = memory_figure(None, 0, near), memory_figure(None, 0, far)

    assert drawn.series[-1].name == "budget: 20.0 MiB for tensors on a card"
    assert drawn.y_range[1] > 20
    assert not any("budget" in series.name for series in left_out.series)


def test_a_tick_on_each_bar_and_two_columns_tell_what_was_predicted() -> None:
    known, unknown = record("A"), record("B")
    known.prediction = prediction(known.plan).run

    figure = run_peaks_figure([known, unknown])

    tick = figure.series[-1]
    assert (tick.kind, tick.x, list(tick.y)) == ("tick", ("A",), [18.0])
    assert [row[2:4] for row in figure.table.rows] == [("18.0", "0 B"), ("-", "-")]
    assert "predicted 18.0 MiB, difference 0 B" in progress_words(known)
    assert "predicted" not in progress_words(unknown)


def test_a_run_that_was_stopped_is_held_against_the_steps_it_made() -> None:
    made = record("A", steps=1)
    foretold = prediction(made.plan).run
    made.prediction = replace(foretold, step_peaks=(18 * MiB, *(20 * MiB,) * (made.plan.steps - 1)))

    assert made.difference == 0

    whole = record("B", steps=2)
    whole.prediction = made.prediction
    assert whole.difference == -2 * MiB
    assert signed_bytes(whole.difference) == "-2.0 MiB"


def test_a_cards_forecast_says_peaks_room_and_what_is_left_out() -> None:
    t4 = card("t4")
    run = prediction(Plan(), card="t4").run
    full = replace(run, fits=False, peak_reserved=budget_bytes(t4) + GiB)

    assert forecast_words(run, t4).startswith(
        "Predicted on Tesla T4 16 GB: peak allocated 18.0 MiB, reserved 18.0 MiB; fits, 14.3 GiB left of 14.3 GiB."
    )
    assert "does not fit, 1.0 GiB too much" in forecast_words(full, t4)
    assert all(
        word in forecast_words(run, t4) for word in ("CUDA context of 256.0 MiB", "cuBLAS", "other processes")
    )
    assert forecast_words(prediction(Plan()).run, None) == (
        "Predicted on this device: peak 18.0 MiB of live tensors, exact to the byte."
    )


def test_plans_that_take_the_same_memory_are_alike() -> None:
    assert alike(Plan(steps=3, learning_rate=0.1, seed=4), Plan())
    assert not alike(Plan(micro_batch_size=4), Plan())


# the bench -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def predictor() -> Iterator[Predictor]:
    made = Predictor()
    yield made
    made.close()


@pytest.fixture
def shown(worker: Worker, predictor: Predictor) -> Iterator[Bench]:
    """A bench that somebody looks at."""
    bench = Bench(model="mlp", micro_batch_size=4, gradient_accumulation_steps=2, steps=3)
    bench._session.worker, bench._foresight.predictor = worker, predictor
    bench._repr_mimebundle_()
    yield bench
    worker.stop()
    bench._session.ended.wait(10)
    bench._pump.close()
    worker.events()
    Session._all.discard(bench._session)
    bench._foresight.predictor = Predictor()


def last(bench: Bench) -> str:
    """Return the name of the last series of the memory figure."""
    with bench._lock:  # a tick that has begun also writes the words
        series = bench._panel.memory.figure.series
        return series[-1].name if series else ""


def names(bench: Bench) -> list[str]:
    """Return what the memory figure draws."""
    return [series.name for series in bench._panel.memory.figure.series]


def test_the_ghost_stands_before_run_and_equals_the_measured_bytes_after_it(
    shown: Bench, until: Until
) -> None:
    until(lambda: last(shown) == "ghost: predicted for mlp 4 x 2 fp32, peak 4.8 MiB")
    foretold = shown._panel.memory.figure.series

    run = shown.run(block=True)
    until(lambda: "measured - predicted = 0 B" in last(shown))

    newest = shown._session.ledger.newest
    assert newest.difference == 0
    assert newest.prediction.peak == run.peak, "by category, and at the same place"
    assert newest.prediction.step_peaks == run.step_peaks
    measured = shown._panel.memory.figure.series
    assert [series.y.max() for series in foretold[:-1]] == [series.y.max() for series in measured[:-1]]
    assert shown._panel.peaks.figure.table.rows[0][2:4] == ("4.8", "0 B")
    assert "(predicted 4.8 MiB, difference 0 B)" in shown._panel.progress.value


def test_a_moved_control_moves_the_ghost_and_the_measured_run_stays(shown: Bench, until: Until) -> None:
    shown.run(block=True)
    before = shown._panel.memory.figure.mark

    shown._controls.fields["micro_batch_size"].widget.value = 64
    until(lambda: last(shown).startswith("ghost: predicted for mlp 64 x 2 fp32"))

    assert shown._panel.memory.figure.mark == before


def test_a_remembered_setting_is_drawn_within_the_callback(shown: Bench, until: Until) -> None:
    until(lambda: "mlp 4 x 2" in last(shown))
    shown._controls.fields["micro_batch_size"].widget.value = 8
    until(lambda: "mlp 8 x 2" in last(shown))
    shown._pump.close()

    shown._controls.fields["micro_batch_size"].widget.value = 4

    assert "mlp 4 x 2" in last(shown)


def test_a_card_is_predicted_for_and_offers_the_large_models(shown: Bench, until: Until) -> None:
    norm = shown._controls.fields["norm"].widget
    norm.value = "group"
    shown._controls.fields["card"].widget.value = "t4"
    until(lambda: "Tesla T4 16 GB" in last(shown))

    assert "Predicted on Tesla T4 16 GB: peak allocated" in shown._panel.forecast.value
    assert "predicting for: Tesla T4 16 GB" in shown._panel.target.value
    assert norm.value == "group", "a longer list of models changes no setting"
    models = [value for _, value in shown._controls.fields["model"].widget.options]
    assert "llama-7b" in models and shown._controls.plan().model == "mlp"

    run = shown.run(block=True)
    until(lambda: shown._session.ledger.newest.prediction)
    assert shown._session.ledger.newest.difference == 0, "the run is held against this device, not the card"
    assert run.environment["device"] == "cpu"


def test_a_refused_prediction_is_one_line_and_the_last_good_figure_stays(shown: Bench, until: Until) -> None:
    until(lambda: "mlp 4 x 2" in last(shown))
    before = shown._panel.memory.figure

    shown._foresight.wish(Question(Plan(data="file:/no/such/file.txt")))
    until(lambda: "/no/such/file.txt" in shown._panel.forecast.value)

    assert shown._panel.forecast.value.count('role="alert"') == 1
    assert names(shown) == [series.name for series in before.series]
    assert shown.last_error is None, "a run is not troubled by it"


@pytest.mark.skipif(os.name != "posix", reason="holds a process with SIGSTOP")
def test_a_long_prediction_tells_its_time_and_can_be_cancelled(shown: Bench, until: Until) -> None:
    until(lambda: "mlp 4 x 2" in last(shown))
    before, worker = names(shown), shown._session.worker.pid
    os.kill(shown._foresight.predictor.pid, signal.SIGSTOP)
    shown._controls.fields["micro_batch_size"].widget.value = 48
    until(lambda: shown._panel.cancel_button.layout.display == "")
    assert re.search(r"predicting: \d+ s", shown._panel.forecast.value)
    assert names(shown) == before, "the last good figure stays"

    shown._panel.cancel_button.click()

    assert "was cancelled" in shown._panel.forecast.value
    assert shown._panel.cancel_button.layout.display == "none"
    assert shown._session.worker.pid == worker
    shown._controls.fields["micro_batch_size"].widget.value = 24
    until(lambda: last(shown).startswith("ghost: predicted for mlp 24 x 2"))


def test_a_run_that_is_refused_leaves_what_was_drawn(shown: Bench) -> None:
    shown.run(block=True)
    rows = shown._panel.peaks.figure.table.rows

    with pytest.raises(RuntimeError, match="needs at least"):
        shown.run(block=True, model="llama-2-70b")

    assert shown._panel.peaks.figure.table.rows == rows
    assert shown._session.ledger.newest.letter == "A"
