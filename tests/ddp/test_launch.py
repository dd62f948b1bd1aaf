"""Ranks of their own: started from here, ended with the run, and one line for the one that breaks."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import memlab
from memlab.engine.client import Worker
from memlab.engine.control import Control
from memlab.engine.measure import measure, measure_events
from memlab.engine.protocol import RankFailed
from memlab.events import Failed, Finished, Started, StepCommunication, StepFinished
from memlab.plan import Plan, PlanError
from tests.ddp.faulty import Faulty
from tests.engine.conftest import events_until, wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="lists processes in /proc")
TWO = Plan(model="mlp", micro_batch_size=4, world_size=2, steps=3)
CUSTOM = Plan(model="custom", micro_batch_size=4, world_size=2, steps=3, optimizer="sgd")


def ranks_alive() -> list[int]:
    """Return the processes of ranks and torchruns of this user, whoever their parent is now."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            # Tests in other processes have ranks too: only those with this test's mark count.
            if b"memlab.engine.rank" in command and MARK.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


MARK = f"MEMLAB_TEST_MARK={os.getpid()}"


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that leaves a process behind."""
    monkeypatch.setenv(*MARK.split("="))
    yield
    deadline = time.monotonic() + 5
    while (left := ranks_alive()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def failure(fault: str) -> tuple[str, float]:
    """Return what `measure` says to a fault, and the seconds from the first step on."""
    begun = time.monotonic()
    with pytest.raises(RankFailed) as error:
        for event in measure_events(CUSTOM, Faulty(fault)):
            if isinstance(event, StepFinished):
                begun = time.monotonic()
            if isinstance(event, Failed):
                raise RankFailed(event.message)
    return str(error.value), time.monotonic() - begun


def test_a_plan_of_two_ranks_is_measured_from_here() -> None:
    seen = list(measure_events(TWO))

    run = seen[-1].run
    exchanges = sorted((one.step, one.rank) for one in seen if isinstance(one, StepCommunication))
    assert exchanges == [(step, rank) for step in range(3) for rank in range(2)]

    assert [rank.rank for rank in run.ranks] == [0, 1] and len(
        {rank.pid for rank in run.ranks} | {os.getpid()}
    ) == 3
    assert run.peak.total == max(rank.peak.total for rank in run.ranks)
    assert run.peak["communication_buffers"] == run.peak["gradients"] == 4 * 282_378
    for rank in run.ranks:
        assert (rank.communication["gradient_exchanges"], rank.communication["gradient_bytes"]) == (
            3,
            12 * 282_378,
        )
    assert run.ranks[0].weights_checksum == run.ranks[1].weights_checksum is not None
    alone = measure(Plan(model="mlp", micro_batch_size=8, steps=3))
    assert run.losses == pytest.approx(alone.losses, rel=1e-5)
    assert memlab.Run.from_json(run.to_json()) == run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "raised"), [("raises", "KeyError: 'label 7'"), ("exits", "SystemExit: no data")]
)
def test_a_rank_that_raises_is_named(fault: str, raised: str) -> None:
    message, seconds = failure(fault)

    assert message == f"Rank 1 of 2: The run broke off with {raised}; the details show where."
    assert seconds < 15


def test_a_rank_that_is_killed_is_named() -> None:
    message, seconds = failure("killed")

    assert message == (
        "Rank 1 of 2 died (killed by SIGKILL), and the other ranks were ended with it; start the run again, with a "
        "smaller micro_batch_size if memory was short."
    )
    assert seconds < 15


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["loops", "stopped"])
def test_a_rank_that_hangs_is_named_with_its_line(fault: str) -> None:
    message, seconds = failure(fault)

    assert message.startswith("Rank 1 of 2 hangs, last seen in "), message
    assert message.endswith(
        "other ranks have waited for it for 10 s; all were ended, and the next run starts new ones."
    ), message
    if fault == "loops":  # a process that is stopped shows nothing newer than a moment before
        assert "in forward 1 at faulty.py:" in message and "(go_wrong)" in message, message
    assert seconds < 15


@pytest.mark.slow
def test_a_slow_rank_is_not_held_to_hang() -> None:
    run = measure(Plan(**{**CUSTOM.to_dict(), "steps": 20}), Faulty("slow"))

    assert len(run.losses) == 20


@pytest.mark.slow
def test_ranks_stop_together_and_listen_on_the_loopback_alone() -> None:
    control, seen, addresses = Control(), [], set()
    plan = Plan(**{**CUSTOM.to_dict(), "steps": 10**6})
    for event in measure_events(plan, Faulty("slow"), control=control):
        seen.append(event)
        if isinstance(event, StepFinished) and event.step == 3:
            addresses = {address for pid in ranks_alive() for address in listening(pid)}
            control.stop()

    finished = seen[-1]
    assert isinstance(finished, Finished) and finished.stopped
    assert 4 <= len(finished.run.losses) < 200 and len(finished.run.ranks) == 2
    assert addresses == {"0100007F"}, "127.0.0.1 as /proc/net/tcp writes it"


def listening(pid: int) -> set[str]:
    """Return the addresses on which a process listens, in hexadecimal."""
    sockets = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()
    ]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


@pytest.mark.slow
def test_ranks_that_are_stopped_while_they_start_end_after_their_first_step() -> None:
    control = Control()
    control.stop()

    seen = list(measure_events(Plan(**{**CUSTOM.to_dict(), "steps": 10**6}), Faulty("slow"), control=control))

    finished = seen[-1]
    assert isinstance(finished, Finished) and finished.stopped and len(finished.run.losses) == 1


@pytest.mark.slow
def test_paused_ranks_stand_still_and_go_on() -> None:
    control, steps = Control(), []

    def collect() -> None:
        for event in measure_events(
            Plan(**{**CUSTOM.to_dict(), "steps": 10**6}), Faulty("slow"), control=control
        ):
            if isinstance(event, StepFinished):
                steps.append(event)

    thread = threading.Thread(target=collect)
    thread.start()
    wait_until(lambda: len(steps) > 2)
    control.pause()
    time.sleep(1.0)
    before = len(steps)
    time.sleep(1.0)
    assert len(steps) == before
    control.resume()
    wait_until(lambda: len(steps) > before)
    control.stop()
    thread.join(30)


@pytest.mark.slow
def test_the_benchs_worker_trains_several_ranks_and_runs_again_after_one_died() -> None:
    worker = Worker(threads=1)
    try:
        worker.run(Plan(**{**TWO.to_dict(), "steps": 10**6}))
        seen = events_until(worker, StepFinished)
        os.kill(next(pid for pid in ranks_alive() if rank_of(pid) == "1"), signal.SIGKILL)
        failed = events_until(worker)[-1]
        worker.run(TWO)
        again = events_until(worker)
    finally:
        worker.close()

    assert any(isinstance(event, Started) for event in seen)
    assert failed.message.startswith("Rank 1 of 2 died (killed by SIGKILL)")
    assert isinstance(again[-1], Finished) and len(again[-1].run.ranks) == 2
    assert {event.rank for event in again if isinstance(event, StepCommunication)} == {0, 1}


def rank_of(pid: int) -> str | None:
    variables = dict(
        line.split("=", 1) for line in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in line
    )
    return variables.get("RANK")


@pytest.mark.slow
def test_ranks_end_with_the_process_that_started_them() -> None:
    program = "import memlab; memlab.measure(memlab.Plan(model='mlp', world_size=2, steps=10**6))"
    launcher = subprocess.Popen([sys.executable, "-c", program])
    wait_until(lambda: sum(rank_of(pid) is not None for pid in ranks_alive()) == 2)

    launcher.kill()
    launcher.wait()


def test_a_workload_of_a_notebook_cannot_travel() -> None:
    kind = type("Mine", (Faulty,), {"__module__": "__main__"})

    with pytest.raises(PlanError) as error:
        measure(CUSTOM, kind("slow"))

    assert str(error.value) == (
        "Mine is defined in this notebook or script, which the processes of several ranks cannot import: move the "
        "class into a file beside it, say my_workload.py, and import it from there."
    )


def test_a_workload_that_cannot_be_pickled_is_refused() -> None:
    workload = Faulty("slow")
    workload.lock = threading.Lock()

    with pytest.raises(PlanError) as error:
        measure(CUSTOM, workload)

    assert str(error.value) == (
        "Faulty cannot be sent to the processes of several ranks (TypeError: cannot pickle '_thread.lock' object): "
        "keep open files, locks and lambdas out of its attributes, or make them in build_model and batch."
    )


def test_sync_batch_norm_is_refused_on_the_cpu() -> None:
    with pytest.raises(PlanError) as error:
        measure(Plan(model="convnet", norm="batch", world_size=2, sync_batch_norm=True))

    assert str(error.value) == (
        "sync_batch_norm=True needs GPUs: torch's SyncBatchNorm exchanges its statistics by CUDA kernels and has none "
        "for the CPU; set norm='group', which couples no samples, or leave it out."
    )
