"""A bench of several ranks: its controls, a real run of two processes, and a run after one has died."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from memlab.plan import Plan
from memlab.ui import choices
from memlab.ui.bench import Bench
from memlab.ui.choices import CPU_RANKS, most_ranks
from memlab.ui.controls import Controls

PLAN = {"model": "mlp", "micro_batch_size": 4, "gradient_accumulation_steps": 2, "world_size": 2}


@pytest.mark.parametrize(
    "fields",
    [
        {"world_size": 2},
        {"world_size": 3, "gradient_sync": "never", "gradient_as_bucket_view": True},
        {"world_size": 8, "data_parallel": "fsdp2", "gradient_sync": "every-micro-step"},
    ],
)
def test_untouched_controls_of_ranks_are_the_plan_that_was_given(fields: dict[str, object]) -> None:
    assert Controls(**fields).plan() == Plan(**fields)


def test_the_global_batch_counts_the_ranks() -> None:
    controls = Controls(micro_batch_size=8, gradient_accumulation_steps=4)

    controls.fields["world_size"].widget.value = 2

    assert "8 x 4 x 2 ranks</span> <span>= global batch 64" in controls.product.value
    assert controls.plan().global_batch_size == 64


def test_what_is_for_several_ranks_is_off_for_one() -> None:
    controls = Controls(world_size=2, gradient_sync="never", gradient_as_bucket_view=True)
    shown = controls.fields["gradient_sync"].block.layout
    assert shown.display == ""

    controls.fields["world_size"].widget.value = 1

    assert shown.display == "none"
    assert controls.problem == ""
    assert controls.plan() == Plan()

    controls.fields["world_size"].widget.value = 2
    assert controls.plan().gradient_sync == "never"
    assert controls.plan(world_size=1) == Plan()


def test_an_impossible_choice_is_explained_beside_it() -> None:
    controls = Controls(world_size=2, data_parallel="fsdp2")

    controls.fields["gradient_sync"].widget.value = "never"

    assert "a rank gets the gradient of its share" in controls.fields["gradient_sync"].error.value


def test_as_many_ranks_are_offered_as_there_are_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (tmp_path / f"0000:0{number}").mkdir()
    monkeypatch.setattr(choices, "GPUS", tmp_path)
    monkeypatch.delenv("MEMLAB_DEVICE", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert most_ranks("auto") == most_ranks("cuda") == 3
    assert most_ranks("cpu") == CPU_RANKS

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert most_ranks("auto") == 2

    monkeypatch.setenv("MEMLAB_DEVICE", "cpu")
    assert most_ranks("auto") == CPU_RANKS


def test_two_ranks_are_shown_while_they_train_and_one_rank_is_not(bench: Bench) -> None:
    panel = bench._panel.ranks
    bench.run(block=True, **PLAN)

    assert panel.widget.layout.display == ""
    assert panel.lanes.figure.lanes == ("rank 1", "rank 0")
    assert panel.lanes.figure.note.startswith("step 3, ")
    assert (
        panel.exchanges.figure.note
        == "step 3: 1 all-reduce of 1.1 MiB together on each rank, in 2 micro-steps"
    )
    assert "the same on all ranks" in panel.weights.value
    record = bench._session.ledger.newest
    assert {rank.rank: rank.peak.sizes for rank in record.run.ranks} == record.ranks.peaks
    assert record.label == "A mlp 4 x 2 x 2 ranks fp32"

    bench.run(block=True, steps=1)

    assert panel.widget.layout.display == "none"


@pytest.mark.slow
def test_a_rank_that_is_killed_is_one_line_and_the_bench_runs_again(
    bench: Bench, until: Callable[[Callable[[], object]], None]
) -> None:
    bench.run(**{**PLAN, "steps": 10**6})
    until(lambda: bench._session.ledger.newest.ranks.last_step)
    worker = bench._session.worker.pid
    victim = next(pid for pid, parent in _processes() if _is_rank(pid) and _descends(parent, worker))
    os.kill(victim, signal.SIGKILL)
    until(lambda: bench.last_error)

    assert "died (killed by SIGKILL)" in bench.last_error
    assert len(bench.run(block=True, **{**PLAN, "steps": 2}).ranks) == 2
    assert bench.last_error is None


def _processes() -> list[tuple[int, int]]:
    """Return (process, its parent) of all."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            found.append((int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])))
        except OSError:
            pass
    return found


def _is_rank(pid: int) -> bool:
    try:
        return b"RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _descends(pid: int, ancestor: int) -> bool:
    parents = dict(_processes())
    while pid > 1 and pid != ancestor:
        pid = parents.get(pid, 0)
    return pid == ancestor
