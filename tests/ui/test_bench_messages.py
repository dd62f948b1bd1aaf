"""What the bench says is true of what is set and shown now: red lines, tables, differences, names of files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import memory_event, prediction, record

from memlab.events import Finished
from memlab.plan import Plan
from memlab.trace import Breakdown
from memlab.ui.bench import Bench
from memlab.ui.files import save_run
from memlab.ui.html import table_html
from memlab.ui.run_figures import peaks_table
from memlab.ui.session import BenchError
from memlab.ui.words import progress_words
from memlab.units import MiB

Until = Callable[[Callable[[], object]], None]


@pytest.mark.parametrize(
    ("name", "value"), [("model", "gpt-tiny"), ("card", "a100-80gb"), ("micro_batch_size", 2)]
)
def test_a_refusal_goes_with_the_settings_that_it_spoke_of(bench: Bench, name: str, value: object) -> None:
    with pytest.raises(BenchError, match="llama-2-70b"):
        bench.run(block=True, model="llama-2-70b")
    assert "llama-2-70b" in bench._panel.error.value

    bench._controls.fields[name].widget.value = value

    assert bench._panel.error.value == ""
    assert bench.last_error is None


def test_a_refusal_stays_while_nothing_is_changed(bench: Bench, until: Until) -> None:
    bench.run(model="llama-2-70b")
    until(lambda: bench.last_error)

    for _ in range(3):
        bench._tick()

    assert "llama-2-70b" in bench._panel.error.value


def test_charts_and_tables_catch_up_while_no_news_come(bench: Bench, until: Until) -> None:
    panel, session = bench._panel, bench._session
    bench.run(steps=100_000)
    until(lambda: session.ledger.newest.step_peaks)
    bench._panel.pause_button.click()
    until(lambda: session.worker.state == "paused" and not bench._behind)
    until(lambda: len(panel.step_peaks.figure.series[0].y) == len(session.ledger.newest.step_peaks))

    assert panel.peaks.figure.table == peaks_table(session.ledger.shown)
    assert panel.peaks.table.value == table_html(panel.peaks.figure.table)


def test_a_step_that_was_broken_off_is_not_held_against_a_whole_one() -> None:
    whole, broken = record("A", steps=1), record("B", steps=1)
    for made, step in ((whole, 0), (broken, 1)):
        made.prediction = foretold = prediction(made.plan).run
        peak = Breakdown.from_dict(memory_event(step).peak)
        run = replace(foretold, peak=replace(peak, sizes=(9 * MiB, *peak.sizes[1:])), losses=(5.0,))
        made.add(Finished(run=run, stopped=True))

    assert whole.difference == -1 * MiB
    assert broken.difference is None
    assert "difference" not in progress_words(broken)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("<b>x</b>", "memlab-run-b-x-b.json"),
        ("../../etc/x", "memlab-run-etc-x.json"),
        ("a" * 300, f"memlab-run-{'a' * 50}.json"),
        ("\U00020000" * 300, f"memlab-run-{chr(0x20000) * 50}.json"),
        ("???", "memlab-run-unnamed.json"),
    ],
)
def test_any_name_makes_a_file_in_this_folder(
    name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    save_run(prediction(Plan()).run, name)

    assert [place.name for place in tmp_path.iterdir()] == [file]


def test_a_bench_without_any_run_left_is_as_new(bench: Bench) -> None:
    for _ in range(2):
        bench.run(steps=1, block=True)
        bench._panel.shelf.pin_button.click()
    for _ in range(2):
        bench._panel.shelf.delete_button.click()

    assert bench.runs == [] and bench.last_error is None
    assert bench._panel.peaks.figure.table.rows == ()
    assert bench._panel.shelf.save_button.disabled
    assert bench.run(steps=1, block=True).losses
    assert bench.last_error is None
