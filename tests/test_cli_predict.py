"""`memlab predict` and `memlab plan`: what they print, what their JSON holds, and how they end."""

import json
import os
import signal
import subprocess
import sys

import pytest

from memlab.cli import main
from memlab.engine.predict import predict
from memlab.plan import Plan
from memlab.run import Run
from memlab.units import format_bytes

TINY = ["--model", "mlp", "--micro-batch-size", "4", "--steps", "2"]
ONE = ["--model", "mlp", "--card", "t4", "--global-batch-size", "4", "--precision", "fp32", "--fused"]

WRONG = {
    "predict --card a100": "--card='a100' is not in the table; choose a100-40gb or a100-80gb.",
    "predict --card t4 --steps 0": "--steps=0 must be at least 1.",
    "predict --jsn x": "--jsn is no flag of `memlab predict`; did you mean --json?",
    "predict --card t4 --json /no/such/folder/run.json": (
        "--json=/no/such/folder/run.json cannot be written (No such file or directory); "
        "name a file in a folder that exists."
    ),
    "plan --global-batch-size 8": "--card is missing: name the GPU to plan for, such as --card=a100-80gb.",
    "plan --card t4": (
        "--global-batch-size is missing: say how many samples an optimizer step has, such as --global-batch-size=64."
    ),
    "plan --card t4 --global-batch-size many": "--global-batch-size='many' must be a whole number, 1 or more.",
    "plan --card t4 --global-batch-size 8 --world-size 3": (
        "--global-batch-size=8 is not a multiple of --micro-batch-size x --world-size = 1 x 3 = 3; "
        "the nearest that are: 6 and 9."
    ),
    "plan --card t4 --global-batch-size 8 --precision bf16-true": (
        "--precision='bf16-true' does not go with Tesla T4 16 GB, which has no BF16 of its own; choose 'fp16-mixed', "
        "leave precision open, or take a card of compute capability 8.0 or higher."
    ),
    "plan --card t4 --global-batch-size 8 --gradient-accumulation-steps 2": (
        "--gradient-accumulation-steps=2 is what `memlab plan` finds: leave it out; --micro-batch-size settles it, as "
        "--global-batch-size / (--micro-batch-size x --world-size)."
    ),
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_ends_with_2_and_one_line(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(line.split())

    out, err = capsys.readouterr()
    assert (status, out, err) == (2, "", f"memlab: {WRONG[line]}\n")


def test_predicts_json_is_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["predict", *TINY, "--card", "t4", "--json", "-"])

    run = Run.from_json(capsys.readouterr().out)
    assert status == 0
    assert run == predict(Plan(model="mlp", micro_batch_size=4, steps=2), card="t4")


def test_the_table_shows_what_fits_and_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["predict", *TINY, "--card", "t4"])

    out = capsys.readouterr().out
    run = predict(Plan(model="mlp", micro_batch_size=4, steps=2), card="t4")
    assert status == 0
    assert "peak of live tensors (predicted)" in out and f"{run.peak.total:,} B" in out, out
    assert f"{run.peak_allocated:,} B" in out and f"{run.peak_reserved:,} B" in out, out
    assert "yes, 14.3 GiB of headroom" in out, out
    assert "cuBLAS workspace" in out and run.environment["leaves_out"] in out, out


def test_a_plan_that_does_not_fit_says_by_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    line = "predict --model gpt2-xl --sequence-length 8 --micro-batch-size 1 --steps 1 --card rtx-4060"

    status = main(line.split())

    out = capsys.readouterr().out
    assert status == 0
    assert "no, " in out and " too much" in out, out


def test_without_a_card_the_plans_own_device_counts(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["predict", *TINY, "--device", "cpu"])

    out = capsys.readouterr().out
    assert status == 0
    assert "peak of live tensors (predicted)" in out and "memory of the card" not in out, out


def test_plans_json_holds_every_proposal(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["plan", *ONE, "--json", "-"])

    answer = json.loads(capsys.readouterr().out)
    assert status == 0
    asked = (answer["model"], answer["card"], answer["global_batch_size"], answer["world_size"])
    assert asked == ("mlp", "t4", 4, 1)
    assert len(answer["proposals"]) == 3 * 3  # micro-batches 1, 2, 4; none, selective, full
    assert {Plan.from_dict(it["plan"]).global_batch_size for it in answer["proposals"]} == {4}
    assert answer["proposals"][0]["relative_speed"] == 1.0
    assert all(it["headroom_bytes"] > 0 and it["peak"]["total"] > 0 for it in answer["proposals"])


def test_plans_table_ranks_and_says_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["plan", *ONE, "--largest-only", "--world-size", "2"])

    out = capsys.readouterr().out
    assert status == 0
    assert out.startswith(
        "3 plans fit the 14.3 GiB left of t4 on each of 2 ranks (predicted), mlp with 4 "
    ), out
    assert [line.split()[0] for line in out.splitlines()[1:5]] == ["rank", "1", "2", "3"], out
    assert "it ranks plans and is no timing" in out and "holds DDP's buckets too" in out, out


def test_where_nothing_fits_the_answer_is_one_line_and_2(capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        "plan --model gpt-tiny --sequence-length 16 --card rtx-4060 --global-batch-size 8192 --micro-batch-size 8192 "
        "--steps 1 --fused --precision fp32 --activation-checkpointing none --json -"
    )

    status = main(line.split())

    out, err = capsys.readouterr()
    said = err.splitlines()[-1].rpartition("\r")[2]  # a slow machine shows a progress bar before
    assert (status, out) == (2, "")
    assert (
        "memlab: nothing fits GeForce RTX 4060 8 GB: the nearest, micro-batch 8192 x K 1 in fp32" in said
    ), said
    assert "it fits with --micro-batch-size=1 or " in said and " or --card='" in said, said


def test_the_headroom_shown_is_that_of_the_python_interface(capsys: pytest.CaptureFixture[str]) -> None:
    from memlab import feasible_plans

    main(["plan", *ONE, "--largest-only"])

    best = feasible_plans("mlp", "t4", 4, precision="fp32", fused=True, largest_only=True)[0]
    row = capsys.readouterr().out.splitlines()[2]
    assert row.endswith(format_bytes(best.headroom_bytes)) and best.plan.activation_checkpointing in row, row


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_in_a_search_is_one_line_and_130() -> None:
    command = "plan --model gpt-tiny --card t4 --global-batch-size 4096"
    search = subprocess.Popen(
        [sys.executable, "-m", "memlab", *command.split()], stderr=subprocess.PIPE, text=True
    )
    assert search.stderr is not None

    seen = search.stderr.read(1)  # the bar: a prediction is under way
    search.send_signal(signal.SIGINT)
    try:
        _, err = search.communicate(timeout=60)
    finally:
        search.kill()

    assert seen and search.returncode == 130, err
    assert err.splitlines()[-1].rpartition("\r")[2] == "memlab: interrupted.", err


def test_a_prediction_that_takes_long_says_so_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("memlab.predicting.attended.QUIET_SECONDS", 0.0)

    assert main(["predict", "--model", "gpt2", "--card", "t4", "--micro-batch-size", "3"]) == 0

    shown = capsys.readouterr().err.split("\r")
    assert any(line.startswith("predicting for 00:0") and "Ctrl-C ends it" in line for line in shown)
    assert not shown[-1].strip()
