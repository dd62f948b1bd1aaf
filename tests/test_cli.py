"""What the command line says, where it says it, and how it ends."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import memlab
from memlab.cli import main
from memlab.cli.doctor import Findings, code_word, rows
from memlab.cli.lab import lab_command
from memlab.cli.plan_flags import field_docs, flag
from memlab.plan import Plan
from memlab.run import Run
from memlab.units import GiB

TINY = ["--model", "mlp", "--micro-batch-size", "4", "--steps", "2", "--device", "cpu"]

WRONG = {
    "train --micro-batchsize 4": "--micro-batchsize is no flag of `memlab train`; did you mean --micro-batch-size?",
    "train --micro 4": "--micro is no flag of `memlab train`; `memlab train --help` lists them all.",
    "train --steps": "--steps needs one value; `memlab train --help` shows what is possible.",
    "train --steps abc": "--steps='abc' must be a whole number, 1 or more.",
    "train --steps -1": "--steps=-1 must be at least 1.",
    "train --learning-rate nan": "--learning-rate=nan must be a number above 0.",
    "train --precision fp8": "--precision='fp8' must be one of 'fp32', 'bf16-mixed', 'fp16-mixed', 'bf16-true'.",
    "train --micro-batch-size 3 --global-batch-size 16": (
        "--global-batch-size=16 is not a multiple of --micro-batch-size x --world-size = 3 x 1 = 3; "
        "the nearest that are: 15 and 18."
    ),
    "train --global-batch-size 8 --gradient-accumulation-steps 1": (
        "--global-batch-size and --gradient-accumulation-steps say the same thing twice; leave one out."
    ),
    "train --world-size 2 --device cuda:1": (
        "--device='cuda:1' names one GPU, and --world-size=2 ranks take one each, from cuda:0 on: say --device='cuda'."
    ),
    "train extra": "'extra' is one word too many for `memlab train`; `memlab train --help` lists its flags.",
    "train --json /no/such/folder/run.json": (
        "--json=/no/such/folder/run.json cannot be written (No such file or directory); "
        "name a file in a folder that exists."
    ),
    "lab --port http": "--port=http must be a whole number from 1 to 65535.",
    "": (
        "a command is missing: `memlab train`, `memlab predict`, `memlab plan`, `memlab doctor` or `memlab lab`."
    ),
}


@pytest.mark.parametrize("line", WRONG, ids=lambda line: line or "nothing")
def test_a_wrong_command_line_ends_with_2_and_one_line(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(line.split())

    out, err = capsys.readouterr()
    assert (status, out, err) == (2, "", f"memlab: {WRONG[line]}\n")


def test_every_field_of_a_plan_has_a_flag_with_the_fields_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["train", "--help"])

    text = " ".join(capsys.readouterr().out.split())
    assert ending.value.code == 0
    missing = [field.name for field in fields(Plan) if flag(field.name) not in text]
    assert not missing, missing
    assert all(docs.split()[0] in text for docs in field_docs().values())


def test_switches_can_be_said_either_way(capsys: pytest.CaptureFixture[str]) -> None:
    line = "train --precision bf16-true --master-weights --no-foreach --steps 0"

    assert main(line.split()) == 2
    assert capsys.readouterr().err == "memlab: --steps=0 must be at least 1.\n"


def test_json_on_standard_output_is_alone(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["train", *TINY, "--global-batch-size", "8", "--json", "-"])

    run = Run.from_json(capsys.readouterr().out)
    assert status == 0
    assert (run.plan.gradient_accumulation_steps, run.source, len(run.losses)) == (2, "measured", 2)


def test_the_table_shows_what_the_file_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"

    status = main(["train", *TINY, "--json", str(path)])

    run = Run.from_json(path.read_text())
    out, err = capsys.readouterr()
    assert status == 0
    assert f"{run.peak.total:,} B" in out and run.peak_place in out, out
    assert all(f"{size:,} B" in out for size in run.peak.values() if size), out
    assert f"{run.losses[0]:.4f}, {run.losses[-1]:.4f}" in out, out
    assert "peak of live tensors (measured)" in out, out
    assert "2/2" in err, err


@pytest.fixture
def two_gibibytes_left() -> Iterator[None]:
    """Limit what this process may take, so that nothing big is really taken."""
    resource = pytest.importorskip("resource")
    lines = Path("/proc/self/status").read_text().splitlines() if Path("/proc/self/status").exists() else []
    held = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")]
    if not held:
        pytest.skip("this system does not say what a process holds")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held[0] + 2 * GiB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.mark.usefixtures("two_gibibytes_left")
def test_out_of_memory_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(
        ["train", "--model", "gpt-small", "--micro-batch-size", str(10**7), "--device", "cpu", "--json", "-"]
    )

    out, err = capsys.readouterr()
    last = err.splitlines()[-1]
    assert (status, out) == (2, "")
    assert last.startswith("memlab: Out of memory on cpu"), err
    assert last.endswith(" with more gradient_accumulation_steps, or --activation-checkpointing='full'."), err


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "memlab", "train", "--steps", "0"], capture_output=True, text=True
    )

    assert (done.returncode, done.stdout, done.stderr) == (2, "", "memlab: --steps=0 must be at least 1.\n")


def test_lab_listens_on_this_machine_alone_and_keeps_its_token() -> None:
    command = lab_command(Path("00_bench.ipynb"), 9999, browser=False)

    assert "--ServerApp.ip=127.0.0.1" in command and "--ServerApp.port=9999" in command
    assert "--no-browser" in command
    assert "--LabApp.default_url=/lab/tree/00_bench.ipynb" in command, "the printed address opens the bench"
    assert not [word for word in command if "token" in word.lower()]


def test_a_port_in_use_is_refused_before_jupyterlab_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        assert main(["lab", "--no-browser", f"--port={port}"]) == 2
    assert capsys.readouterr().err.startswith(f"memlab: --port={port} is in use")


def findings(trouble: str | None) -> Findings:
    """Return what a doctor sees on a machine where torch is 2.13.0."""
    versions = {"torch": "2.13.0+cpu", "ipykernel": "7.4.0", "plotly": None}
    return Findings(
        versions=versions,
        device="cpu",
        device_name="a processor",
        backend="image",
        free={"host": 3 * 1024**3},
        trouble=trouble,
        seconds=2.5,
    )


def test_the_code_word_tells_the_main_facts() -> None:
    word = code_word(findings(None))

    assert word.endswith("-torch2.13.0-cpu-image-kernel7-ok"), word
    assert code_word(findings("it broke.")).endswith("-broken")


def test_the_doctor_says_what_is_not_there() -> None:
    shown = dict(rows(findings(None)))

    assert (shown["plotly"], shown["free memory, host"]) == ("not installed", "3.0 GiB")
    assert shown["worker process"] == "started and trained two steps in 2.5 s"


def test_the_doctor_trains_two_steps(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["doctor"])

    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    assert out.splitlines()[-1].endswith("-ok"), out


def test_ctrl_c_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("memlab.cli.train.run", interrupted)

    assert main(["train"]) == 130
    assert capsys.readouterr().err == "memlab: interrupted.\n"


def test_a_model_too_large_for_this_device_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--model", "llama-2-70b", "--device", "cpu"]) == 2

    out, lines = capsys.readouterr()
    assert out == ""
    assert lines.count("\n") == 1  # the bar, which had nothing to show, is gone
    assert "--model='llama-2-70b' needs at least" in lines
    assert "memlab.predict(plan, card='a100-80gb')" in lines  # Python, not flags


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"memlab {memlab.__version__}\n"
