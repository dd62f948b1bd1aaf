"""The bench without a browser: the widgets are driven, the worker is the real one."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from memlab.plan import Plan, PlanError
from memlab.run import Run
from memlab.ui.bench import Bench
from memlab.ui.drawing import draw
from memlab.ui.session import BenchError
from memlab.units import MiB

Until = Callable[[Callable[[], object]], None]


def state(bench: Bench) -> str:
    return bench._panel.state.value


def test_a_blocking_run_returns_what_was_measured(bench: Bench) -> None:
    run = bench.run(steps=2, block=True)

    assert isinstance(run, Run)
    assert len(run.losses) == 2
    assert run.plan == Plan(model="mlp", micro_batch_size=4, gradient_accumulation_steps=2, steps=2)
    assert bench.runs == [run]
    assert bench.plan.steps == 3, "the fields of one run do not move the controls"
    assert "finished: run A" in state(bench)
    assert bench.last_error is None


def test_figures_follow_the_run_and_pinned_runs_stay(bench: Bench) -> None:
    bench.run(block=True)
    panel = bench._panel
    assert panel.loss.figure.series[0].name == "now: A mlp 4 x 2 fp32"
    assert panel.memory.figure.mark is not None
    assert len(panel.step_peaks.figure.series[0].y) == 3

    panel.shelf.pin_button.click()
    panel.shelf.name.value = "first"
    bench.run(block=True, micro_batch_size=8, gradient_accumulation_steps=1)

    assert [series.name for series in panel.loss.figure.series] == [
        "now: B mlp 8 x 1 fp32",
        "pinned: A first",
    ]
    assert [row[0] for row in panel.peaks.figure.table.rows] == ["A first", "B mlp 8 x 1 fp32"]
    assert panel.peaks.table.value.count("<tr>") == 3

    panel.shelf.chosen.value = "A"
    panel.shelf.delete_button.click()

    assert [row[0] for row in panel.peaks.figure.table.rows] == ["B mlp 8 x 1 fp32"]
    assert len(bench.runs) == 1


def test_the_last_good_figure_stays_until_the_next_run_has_its_own(bench: Bench) -> None:
    bench.run(block=True)
    before = bench._panel.memory.figure

    bench._session.ledger.begin(bench.plan)
    draw(bench._panel, bench._session.ledger, bench._foresight, in_full=True)

    assert bench._panel.memory.figure is before


def test_runs_that_are_not_pinned_give_way_and_keep_no_trace(bench: Bench) -> None:
    for _ in range(3):
        bench.run(steps=1, block=True)
    bench.pin("kept", run="C")
    bench.run(steps=1, block=True)

    assert [run.trace is None for run in bench.runs] == [True, True, False, False]
    assert [row[0] for row in bench._panel.peaks.figure.table.rows] == ["C kept", "D mlp 4 x 2 fp32"]


def test_the_buttons_run_pause_resume_and_stop(bench: Bench, until: Until) -> None:
    panel = bench._panel
    bench._controls.fields["steps"].widget.max = 100_000
    bench._controls.fields["steps"].widget.value = 100_000

    panel.run_button.click()
    until(lambda: bench._session.ledger.newest and len(bench._session.ledger.newest.losses) > 2)
    assert panel.run_button.disabled
    panel.pause_button.click()
    until(lambda: "paused" in state(bench))
    assert panel.pause_button.description == "Resume"
    until(lambda: not bench._session.worker.events())
    held = len(bench._session.ledger.newest.losses)
    panel.pause_button.click()
    until(lambda: len(bench._session.ledger.newest.losses) > held)
    panel.stop_button.click()
    until(lambda: "stopped: run A" in state(bench))

    assert bench.last_error is None
    assert not panel.run_button.disabled
    assert len(bench.run(steps=1, block=True).losses) == 1


def test_run_pressed_twice_is_one_clear_line_and_one_run(bench: Bench, until: Until) -> None:
    bench._panel.run_button.click()
    bench._panel.run_button.click()

    sentence = "A run is going on: press Stop or wait for its end, then press Run."
    assert bench.last_error == sentence
    assert sentence in bench._panel.error.value
    until(lambda: "finished: run A" in state(bench))
    assert len(bench.runs) == 1


def test_a_killed_worker_is_one_clear_line_and_the_bench_runs_again(bench: Bench, until: Until) -> None:
    bench.run(steps=100_000)
    until(lambda: bench._session.ledger.newest.losses)

    os.kill(bench._session.worker.pid, signal.SIGKILL)
    until(lambda: bench.last_error)

    assert "The worker process died (killed by SIGKILL)" in bench.last_error
    assert 'role="alert"' in bench._panel.error.value
    assert "failed" in state(bench)
    assert len(bench.run(steps=2, block=True).losses) == 2
    assert bench.last_error is None
    assert bench._panel.error.value == ""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sets another process's limit, as Linux can")
def test_out_of_memory_is_one_clear_line_and_the_bench_runs_at_once(bench: Bench) -> None:
    import resource

    bench.run(steps=1, block=True)
    pid = bench._session.worker.pid
    held = 1024 * int(re.search(r"VmData:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])
    before = resource.prlimit(pid, resource.RLIMIT_DATA, (held + 256 * MiB, resource.RLIM_INFINITY))

    with pytest.raises(BenchError, match="Out of memory on cpu"):
        bench.run(block=True, model="gpt-tiny", micro_batch_size=64, sequence_length=512, steps=1)
    assert bench._panel.progress.value.count("step") == 0, "the run before it had one"
    assert "micro_batch_size=64 does not fit; try micro_batch_size=32" in bench.last_error
    assert bench._panel.error.value.count('role="alert"') == 1
    assert "failed" in state(bench)
    assert not bench._panel.run_button.disabled

    run = bench.run(steps=2, block=True)

    assert len(run.losses) == 2 and bench.last_error is None
    assert bench._session.worker.pid == pid, "the same process goes on"
    resource.prlimit(pid, resource.RLIMIT_DATA, before)


def test_a_preset_that_cannot_fit_is_refused_in_one_line(bench: Bench) -> None:
    with pytest.raises(BenchError, match="llama-2-70b"):
        bench.run(block=True, model="llama-2-70b")

    assert bench.last_error.startswith("model='llama-2-70b' needs at least 1027.8 GiB (")
    assert "memlab.predict(plan, card=" in bench.last_error
    assert len(bench.run(steps=1, block=True).losses) == 1


def test_nothing_hangs_or_is_lost_while_nobody_reads_the_pipe(bench: Bench) -> None:
    bench.run(steps=1, block=True)
    bench.run(steps=400)

    with bench._session.worker._process._lock:  # the reading thread waits for it: the pipe fills
        time.sleep(1.5)
    assert bench._session.ended.wait(60)

    run = bench.runs[-1]
    assert len(run.losses) == len(run.step_peaks) == 400
    assert bench.last_error is None
    assert len(bench.run(steps=1, block=True).losses) == 1


def test_a_loss_that_is_no_number_stops_the_run_in_one_line(bench: Bench) -> None:
    run = bench.run(steps=1000, block=True, learning_rate=1e30, optimizer="sgd")

    assert len(run.losses) < 1000
    assert "lower learning_rate=1e+30." in bench.last_error
    assert len(bench.run(steps=1, block=True).losses) == 1


def test_what_the_worker_refuses_is_raised_where_the_cell_waits(bench: Bench, tmp_path: object) -> None:
    with pytest.raises((BenchError, PlanError), match="no-such-file"):
        bench.run(block=True, model="gpt-tiny", data=f"file:{tmp_path}/no-such-file")

    assert "no-such-file" in bench.last_error
    assert len(bench.run(steps=1, block=True).losses) == 1


def test_an_impossible_setting_turns_run_off_and_says_why(bench: Bench) -> None:
    bench._controls.fields["model"].widget.value = "gpt-tiny"
    bench._controls.fields["data"].widget.value = "file:"

    assert bench._panel.run_button.disabled
    assert "Run waits" in bench._panel.why.value
    with pytest.raises(PlanError):
        bench.run(block=True)

    bench._controls.fields["data"].widget.value = "text"

    assert not bench._panel.run_button.disabled
    assert "Run waits" not in bench._panel.why.value


def test_an_error_in_a_callback_is_shown_in_the_panel(bench: Bench) -> None:
    bench._panel.shelf.save_button.click()

    assert bench.last_error == "No run has finished yet: press Run first."
    assert "<details>" in bench._panel.error.value


def test_a_saved_run_is_read_back(bench: Bench, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = bench.run(steps=1, block=True)

    first, second = bench.save(), bench.save()

    assert (first.name, second.name) == ("memlab-run-A.json", "memlab-run-A-2.json")
    assert Run.from_json(first.read_text(encoding="utf-8")) == run


def test_the_loss_scale_has_its_card_only_where_there_is_one(bench: Bench) -> None:
    bench.run(steps=2, block=True)
    assert bench._panel.loss_scale.widget.layout.display == "none"

    bench.run(steps=2, block=True, precision="fp16-mixed")

    assert bench._panel.loss_scale.widget.layout.display == ""
    assert bench._panel.loss_scale.figure.series[0].y[0] == 65536


def test_what_notebooks_keep_of_the_bench_is_the_same_each_time(bench: Bench) -> None:
    bundle = bench._repr_mimebundle_()

    assert bundle["text/plain"] == "memlab bench: run this cell to use it"
    assert "No run yet" in bundle["text/html"]
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == bench._panel.widget.model_id


def test_another_model_for_one_run_brings_its_own_data_and_norm(bench: Bench) -> None:
    run = bench.run(steps=1, block=True, model="gpt-tiny", sequence_length=8, micro_batch_size=1)

    assert (run.plan.model, run.plan.data, run.plan.norm) == ("gpt-tiny", "text", "layer")


def test_only_one_worker_waits_however_often_a_cell_is_run_again() -> None:
    first, second = Bench(model="mlp", steps=1), Bench(model="mlp", steps=1)

    first._repr_mimebundle_()
    second._repr_mimebundle_()

    assert first._session.worker.pid is None
    assert second._session.worker.pid is not None
    assert first.run(block=True).losses == second.run(block=True).losses
    assert first._session.worker.pid is None
    first.close()
    second.close()
    second._repr_mimebundle_()
    assert second._session.worker.pid is None


def test_a_worker_that_trains_is_not_ended_for_another_bench(bench: Bench, until: Until) -> None:
    bench.run(steps=100_000)
    until(lambda: bench._session.ledger.newest.losses)
    other = Bench(model="mlp", steps=1)

    other.run(block=True)
    other.close()

    assert "running" in state(bench)
    assert bench.last_error is None


def test_a_run_is_found_by_its_letter_before_anothers_name(bench: Bench) -> None:
    for _ in range(2):
        bench.run(steps=1, block=True)
    bench.pin("B", run="A")

    bench.delete("B")

    assert [record.letter for record in bench._session.ledger.records] == ["A"]


def test_a_lost_loss_is_said_once(bench: Bench) -> None:
    bench.run(steps=1000, block=True, learning_rate=1e30, optimizer="sgd")

    assert "is nan" in bench.last_error or "is inf" in bench.last_error
    assert "loss of optimizer step" not in bench._panel.notes.value


def test_a_closed_bench_says_so() -> None:
    bench = Bench()
    bench.close()

    with pytest.raises(BenchError, match=r"This bench is closed; make a new one with memlab.Bench\(\)."):
        bench.run(block=True)


def test_impossible_fields_are_refused_at_once() -> None:
    with pytest.raises(PlanError, match="micro_batch_size=0 must be at least 1."):
        Bench(micro_batch_size=0)
