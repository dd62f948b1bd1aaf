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

plan = Plan(**{plan!r})
first = predict(plan, card={card!r})
begin = time.perf_counter()
predict(replace(plan, seed=1), card={card!r})
whole = time.perf_counter() - begin
ended = 0
for n in range(20):
    timer = threading.Timer(whole * n / 20, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        predict(replace(plan, seed=2 + n), card={card!r})
        timer.join()
        time.sleep(1)  # it came too late: here
    except KeyboardInterrupt:
        ended += 1
again = predict(replace(plan, seed=0, steps=plan.steps - 1), card={card!r})
assert again.peak == first.peak and again.peaks_by_phase == first.peaks_by_phase
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
print(ended)
"""


LARGE = {
    "model": "llama-7b",
    "precision": "bf16-mixed",
    "micro_batch_size": 2,
    "activation_checkpointing": "full",
}


@posix
@pytest.mark.parametrize(
    ("plan", "card"),
    [
        ({"device": "cpu", "micro_batch_size": 2, "sequence_length": 32}, None),
        pytest.param(LARGE, "a100-80gb", marks=pytest.mark.slow),
    ],
    ids=["cpu", "card"],
)
def test_an_interrupt_at_any_moment_ends_a_prediction_and_nothing_else(plan: dict, card: str | None) -> None:
    """An exception in the middle of an operation without data, or of backward, would abort the process."""
    program = INTERRUPTED.format(plan=plan, card=card)

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)

    assert (done.returncode, done.stdout.strip()) == (0, "20"), done.stderr


BROKEN_OFF = """
import os, signal, threading
threading.Timer({after}, os.kill, (os.getpid(), signal.SIGINT)).start()
import memlab
ended = 0
try:
    memlab.predict
    import time; time.sleep(10)
except KeyboardInterrupt:
    ended = 1
print(ended, memlab.predict(memlab.Plan(model="mlp", device="cpu")).peak.total > 0)
"""


@posix
@pytest.mark.parametrize("after", [0.5, pytest.param(1.5, marks=pytest.mark.slow)])
def test_an_interrupt_of_the_first_import_leaves_torch_whole(after: float) -> None:
    program = BROKEN_OFF.format(after=after)

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stdout.strip()) == (0, "1 True"), done.stderr


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
