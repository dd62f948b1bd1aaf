"""The worker runs, waits, stops, dies and comes again; nothing that happens to it reaches the kernel."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memlab.engine.client import Worker, WorkerBusy
from memlab.engine.measure import measure
from memlab.engine.process import command_line, environment
from memlab.events import Failed, Finished, Started, StepFinished, StepMemory
from memlab.plan import Plan
from tests.engine.conftest import BRIEF, ENDLESS, LONGEST, events_until, wait_until

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and limits")


def kinds(events: list[object]) -> list[type]:
    """Return what the events are."""
    return [type(event) for event in events]


def test_a_run_in_the_worker_is_the_run_here(worker: Worker) -> None:
    worker.run(BRIEF)

    events = events_until(worker)

    finished = events[-1]
    here = measure(BRIEF)
    assert isinstance(finished, Finished) and not finished.stopped
    assert (finished.run.losses, finished.run.trace) == (here.losses, here.trace)
    assert (finished.run.step_peaks, finished.run.peak) == (here.step_peaks, here.peak)
    assert kinds(events)[0] is Started and kinds(events).count(StepFinished) == 3
    assert worker.state == "idle"


def test_every_steps_peak_arrives_however_seldom_one_looks(worker: Worker) -> None:
    worker.run(Plan(model="mlp", micro_batch_size=4, steps=30))
    wait_until(lambda: not worker.busy)

    events = worker.events()

    memories = [event for event in events if isinstance(event, StepMemory)]
    peaks = [(memory.step, memory.peak["total"]) for memory in memories]
    assert len(memories) == 1 and peaks[0][0] == 29
    assert (*memories[0].earlier_peaks, *peaks) == tuple(enumerate(events[-1].run.step_peaks))
    assert [event.step for event in events if isinstance(event, StepFinished)] == list(range(30))


def test_a_second_run_is_refused_while_one_goes_on(worker: Worker) -> None:
    worker.run(ENDLESS)

    with pytest.raises(WorkerBusy) as refused:
        worker.run(BRIEF)

    assert str(refused.value) == (
        "A run is going on, and the worker trains one plan at a time; press Stop or wait for its end."
    )
    worker.stop()
    assert events_until(worker)[-1].stopped


def test_stop_keeps_what_was_measured(worker: Worker) -> None:
    worker.run(ENDLESS)
    seen = events_until(worker, StepFinished)
    worker.stop()

    finished = (seen + events_until(worker))[-1]

    assert isinstance(finished, Finished) and finished.stopped
    assert 1 <= len(finished.run.losses) == len(finished.run.step_peaks) < ENDLESS.steps
    assert finished.run.peak.total >= max(finished.run.step_peaks)


def test_stop_breaks_off_a_step_from_inside(worker: Worker) -> None:
    # One step of many minutes, in micro-steps of many seconds: no mark comes in time.
    worker.run(Plan(model="gpt-small", micro_batch_size=256, gradient_accumulation_steps=4, steps=2))
    events_until(worker, Started)
    time.sleep(0.5)
    worker.stop()

    finished = events_until(worker)[-1]

    assert isinstance(finished, Finished) and finished.stopped, finished
    assert finished.run.losses == ()


def test_pause_holds_a_run_and_resume_lets_it_go_on(worker: Worker) -> None:
    worker.run(ENDLESS)
    events_until(worker, StepFinished)
    worker.pause()
    state = worker.state
    time.sleep(0.3)  # what was under way when it paused
    worker.events()
    time.sleep(0.3)
    while_paused = worker.events()
    worker.resume()
    going_on = events_until(worker, StepFinished)
    worker.stop()
    events_until(worker)

    assert (state, while_paused) == ("paused", [])
    steps = [event for event in going_on if isinstance(event, StepFinished)]
    assert steps[0].seconds < 0.5, "the pause was counted as training"


def test_stop_ends_a_paused_run(worker: Worker) -> None:
    worker.run(ENDLESS)
    worker.pause()
    worker.stop()

    assert events_until(worker)[-1].stopped


@posix
def test_a_killed_worker_is_one_clear_line_and_the_next_run_works(worker: Worker) -> None:
    worker.run(ENDLESS)
    events_until(worker, StepFinished)
    os.kill(worker.pid, signal.SIGKILL)

    failures = [event for event in events_until(worker) if not isinstance(event, (StepFinished, StepMemory))]

    assert failures == [
        Failed(
            kind="crash",
            message="The worker process died (killed by SIGKILL); press Run to start again, with a smaller "
            "micro_batch_size if memory was short.",
        )
    ]
    assert (worker.state, worker.pid) == ("dead", None)
    worker.run(BRIEF)
    assert isinstance(events_until(worker)[-1], Finished)


@posix
def test_a_worker_killed_while_idle_is_replaced_without_a_word(worker: Worker) -> None:
    worker.run(BRIEF)
    events_until(worker)
    os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: worker.state == "dead")

    worker.run(BRIEF)

    assert kinds(events_until(worker))[-1] is Finished


def test_an_impossible_device_is_a_plans_error(worker: Worker) -> None:
    worker.run(Plan(device="cuda:99", steps=1))

    failed = events_until(worker)[-1]

    assert isinstance(failed, Failed) and failed.kind == "plan"
    assert failed.message.startswith("device='cuda:99' ") and failed.details == ""
    worker.run(BRIEF)
    assert isinstance(events_until(worker)[-1], Finished)


def test_a_loss_that_is_not_a_number_is_no_failure(worker: Worker) -> None:
    worker.run(Plan(model="mlp", optimizer="sgd", learning_rate=1e30, steps=4))

    finished = events_until(worker)[-1]

    assert isinstance(finished, Finished) and len(finished.run.losses) == 4
    assert finished.run.losses[-1] != finished.run.losses[-1]


@posix
def test_out_of_memory_is_one_clear_line_and_the_next_run_works() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (3 * 2**30, before[1]))  # inherited: the machine stays free
    try:
        worker = Worker(threads=1)
        worker.start()
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)

    worker.run(Plan(model="gpt-small", micro_batch_size=10**7))
    failed = events_until(worker)[-1]
    worker.run(BRIEF)
    after = events_until(worker)[-1]
    worker.close()

    assert isinstance(failed, Failed) and failed.kind == "out-of-memory"
    assert failed.message.startswith("Out of memory on cpu while it asked for "), failed.message
    assert " samples) does not fit; try micro_batch_size=" in failed.message
    assert failed.message.endswith(
        " with more gradient_accumulation_steps, or activation_checkpointing='full'."
    )
    assert failed.details == "" and isinstance(after, Finished)


def test_the_worker_ignores_the_learners_random_py_and_leaves_when_its_kernel_dies(tmp_path: Path) -> None:
    if sys.version_info >= (3, 11):  # before, every `python -m` imports from the folder it is started in
        (tmp_path / "random.py").write_text("raise ImportError('not the standard library')")
    process = subprocess.Popen(
        command_line(1),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
        cwd=tmp_path,
    )
    assert process.stdout.readline() == "ready\n"
    process.stdin.write(f'{{"command": "run", "plan": {ENDLESS.to_json()}}}\n')
    process.stdin.flush()
    assert "Started" in process.stdout.readline()

    with process.stdout:
        process.stdin.close()
        status = process.wait(LONGEST)

    assert status == 0


def test_an_interpreter_that_forgets_its_worker_leaves_no_process() -> None:
    program = (
        "from memlab.engine.client import Worker; from memlab.plan import Plan; "
        "worker = Worker(); worker.run(Plan(steps=10**6)); print(worker.pid)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONGEST)

    assert (done.returncode, done.stderr) == (0, "")
    if os.name == "posix":
        with pytest.raises(ProcessLookupError):
            os.kill(int(done.stdout), 0)


def test_a_worker_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch is broken here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker = Worker()
    worker.run(BRIEF)

    failed = events_until(worker)[-1]

    assert failed.kind == "crash" and "ImportError: torch is broken here" in failed.details
    assert failed.message == (
        "The worker process could not start (exit code 1); run `memlab doctor`, the details show what it said."
    )


def test_closing_ends_the_process_and_says_nothing() -> None:
    worker = Worker(threads=1)
    worker.run(ENDLESS)
    worker.close()

    wait_until(lambda: worker.state == "dead")
    assert not [event for event in worker.events() if isinstance(event, Failed)]
