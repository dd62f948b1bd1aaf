"""What the command line does where its result finds no place, or its streams are odd."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from memlab.cli import main, output
from memlab.cli.doctor import BACKENDS
from memlab.cli.parser import UsageError
from memlab.cli.report import ranks_table
from memlab.plan import DataParallel, Plan
from memlab.run import Rank
from memlab.ui.charts import Backend
from tests.test_run import PEAK, RUN

TINY = "train --model mlp --micro-batch-size 4 --steps 1 --device cpu"
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
needs_shell = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")


def shell(line: str, **variables: str) -> tuple[int, str, str]:
    """Run `memlab` and the rest of `line`; return status, output and errors."""
    words = [f"{name}={value}" for name, value in variables.items()]
    command = ["env", *words, "sh", "-c", f"'{sys.executable}' -m memlab {line}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@needs_full
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            f"{TINY} --json /dev/full",
            "--json=/dev/full cannot be written (No space left on device); name a file with room left.",
        ),
        (
            f"{TINY} > /dev/full",
            "standard output cannot be written (No space left on device); write the result to a file with --json=FILE.",
        ),
    ],
)
def test_a_full_device_is_found_before_training(line: str, sentence: str) -> None:
    assert shell(line) == (2, "", f"memlab: {sentence}\n")


@needs_full
def test_a_file_that_fills_up_at_the_end_still_leaves_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        UsageError, match=r"^--json=/dev/full cannot be written \(No space left on device\); "
    ):
        output.put(str(FULL), "{}", lambda: "the table")

    assert capsys.readouterr().out == "the table\n"


@needs_full
def test_a_full_standard_output_at_the_end_is_one_line() -> None:
    status, _, err = shell(f"{TINY} --json /dev/null > /dev/full")

    assert status == 2 and "Traceback" not in err
    assert err.splitlines()[-1].startswith("memlab: standard output cannot be written (No space left"), err


@needs_shell
def test_characters_that_the_terminal_lacks_are_escapes(tmp_path: Path) -> None:
    path = tmp_path / "h\u00e9.txt"
    path.write_text("to be or not to be, that is the question. " * 9)
    line = f"train --data 'file:{path}' --sequence-length 8 --micro-batch-size 1 --steps 1 --device cpu"

    status, out, err = shell(line, PYTHONIOENCODING="ascii", PYTHONUTF8="1")

    assert status == 0, err
    assert "h\\xe9.txt" in out


@needs_shell
def test_without_standard_error_it_trains_and_json_is_alone() -> None:
    status, out, _ = shell(f"{TINY} --json - 2>&-")

    assert status == 0 and len(json.loads(out)["losses"]) == 1


@needs_shell
def test_without_standard_error_nothing_wrong_is_said_on_standard_output() -> None:
    assert shell("train --steps 0 2>&-") == (2, "", "")


@needs_shell
def test_without_standard_output_the_result_needs_a_file() -> None:
    sentence = "standard output is closed, and the result would be lost; write it to a file with --json=FILE."

    assert shell(f"{TINY} >&-") == (2, "", f"memlab: {sentence}\n")


def test_what_cannot_run_leaves_no_file_and_touches_none(tmp_path: Path) -> None:
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    old.write_text("kept")

    for path in (new, old):
        assert main(["train", "--device", "cuda:99", "--json", str(path)]) == 2

    assert not new.exists() and old.read_text() == "kept"


def test_the_doctor_names_the_charts_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEMLAB_CHARTS", "banana")

    assert main(["doctor"]) == 2
    assert capsys.readouterr() == (
        "",
        "memlab: the environment variable MEMLAB_CHARTS='banana' must be one of plotly, image, none; "
        "set one of these or unset it.\n",
    )


def test_the_doctor_knows_the_back_ends_of_the_bench() -> None:
    assert get_args(Backend) == BACKENDS


SHARED = {"gradient_exchanges": 4, "gradient_bytes": 8192, "weight_gathers": 8, "weight_bytes": 16384}


@pytest.mark.parametrize(
    ("division", "counts", "exchanged"),
    [
        ("ddp", {}, "0 all-reduces (0 B) of gradients a step, in 3.0 ms"),
        (
            "zero1",
            {"gradient_exchanges": 4, "gradient_bytes": 4096},
            "1 all-reduce (1.0 KiB) of gradients a step, in 3.0 ms",
        ),
        (
            "fsdp2",
            SHARED,
            "1 reduce-scatter (2.0 KiB) of gradients and 2 all-gathers (4.0 KiB) of weights a step, in 3.0 ms",
        ),
        ("fsdp2", {}, "exchanges were not counted"),
    ],
)
def test_ranks_say_what_they_exchanged_or_that_nobody_counted(
    division: DataParallel, counts: dict[str, int], exchanged: str
) -> None:
    counted = {**counts, "microseconds": 12_000}  # in four steps
    ranks = tuple(Rank(rank=number, peak=PEAK, communication=counted) for number in (0, 1))

    lines = ranks_table(replace(RUN, plan=Plan(world_size=2, data_parallel=division), ranks=ranks))

    assert [line.endswith(f"1.5 KiB  {exchanged}") for line in lines] == [False, True, True]
