"""A long prediction is seen and can be ended, whatever it is doing, and leaves the process as it was."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from memlab import Plan, predict, record

posix = pytest.mark.skipif(os.name != "posix", reason="sends a signal")

INTERRUPTED = """
import os, signal, sys, threading, time
from dataclasses import replace
from memlab import Plan, predict

plan = Plan(device="cpu", micro_batch_size=2, sequence_length=32)
first = predict(plan)
begin = time.perf_counter()
predict(replace(plan, seed=1))
whole = time.perf_counter() - begin
ended = 0
for n in range(20):
    timer = threading.Timer(whole * n / 20, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        predict(replace(plan, seed=2 + n))
        timer.join()
        time.sleep(1)  # it came too late: here
    except KeyboardInterrupt:
        ended += 1
again = predict(replace(plan, seed=0, steps=plan.steps - 1))
assert again.peak == first.peak and again.peaks_by_phase == first.peaks_by_phase
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
print(ended)
"""


@posix
def test_an_interrupt_at_any_moment_ends_a_prediction_and_nothing_else() -> None:
    """An exception in the middle of an operation without data would abort the process."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stdout.strip()) == (0, "20"), done.stderr


@posix
def test_the_second_interrupt_ends_even_a_program_that_runs_no_operation() -> None:
    def setup(device: torch.device) -> object:
        signal.raise_signal(signal.SIGINT)
        reached.append("waits for the next operation")
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        record(setup)

    assert reached and signal.getsignal(signal.SIGINT) is signal.default_int_handler


@posix
def test_an_interrupt_after_the_last_operation_is_not_lost() -> None:
    def setup(device: torch.device) -> object:
        torch.ones(2, device=device)
        return lambda: signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        record(setup, iterations=1)


def test_what_takes_long_says_so_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("memlab.predicting.attended.QUIET_SECONDS", 0.0)

    def setup(device: torch.device) -> object:
        def iteration() -> None:
            deadline = time.monotonic() + 10
            while not said and time.monotonic() < deadline:
                torch.ones(2, device=device)
                said.extend(capsys.readouterr().err.split("\r"))

        return iteration

    said: list[str] = []
    record(setup, iterations=1)

    assert any(line.startswith("recording for 00:0") and "Ctrl-C ends it" in line for line in said), said
    assert not capsys.readouterr().err.split("\r")[-1].strip()
    assert not any(thread.name == "memlab-progress" and thread.is_alive() for thread in _settled())


def _settled() -> list[threading.Thread]:
    for thread in threading.enumerate():
        if thread.name == "memlab-progress":
            thread.join(10)
    return threading.enumerate()


def test_without_progress_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("memlab.predicting.attended.QUIET_SECONDS", 0.0)

    predict(Plan(model="mlp", micro_batch_size=3, device="cpu"), progress=False)

    assert not capsys.readouterr().err


def test_another_thread_predicts_as_well() -> None:
    plan = Plan(model="mlp", micro_batch_size=5, device="cpu")
    found = []
    thread = threading.Thread(target=lambda: found.append(predict(plan, card="t4").peak))

    thread.start()
    thread.join(60)

    assert found == [predict(plan, card="t4").peak]
