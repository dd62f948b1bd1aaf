"""`memlab doctor`: is everything here that a workshop needs? Ends with a code word to send back."""

import argparse
import importlib.metadata
import os
import platform
import sys
import time
from dataclasses import dataclass

import memlab
from memlab.cli.output import say
from memlab.cli.parser import Parser, UsageError
from memlab.units import format_bytes

HELP = "check this installation and print a code word for the teacher"
PACKAGES = ("torch", "numpy", "ipykernel", "jupyterlab", "ipywidgets", "anywidget", "plotly", "matplotlib")
BACKENDS = ("plotly", "image", "none")
"""What MEMLAB_CHARTS may say."""
NEEDED_TO_TRAIN = ("torch", "numpy")
WORKER_SECONDS = 120.0
"""How long the worker may take; importing torch from a slow disk takes most of it."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the doctor saw."""

    versions: dict[str, str | None]
    device: str
    """ "cpu", "cuda", or "none" where torch does not load."""
    device_name: str
    backend: str
    free: dict[str, int | None]
    """Free memory of host and GPU, bytes."""
    trouble: str | None
    """Why a two-step run in the worker did not end well; None where it did."""
    seconds: float


def add_arguments(parser: Parser) -> None:
    """This command takes no flags."""


def run(options: argparse.Namespace) -> int:
    """Print the findings and the code word; 2 where memlab cannot train here."""
    findings = examine()
    say("\n".join(f"{name:<22}{value}" for name, value in rows(findings)))
    if findings.trouble is not None:
        print(f"memlab doctor: {findings.trouble}", file=sys.stderr)
        return 2
    return 0


def examine() -> Findings:
    """Look at versions, device and charts, and train two steps in a worker process."""
    found = {name: version(name) for name in PACKAGES}
    backend = chart_backend(found)
    trouble, seconds = None, 0.0
    if missing := [name for name in NEEDED_TO_TRAIN if found[name] is None]:
        trouble = f"{' and '.join(missing)} missing: `pip install {' '.join(missing)}` adds what memlab trains with."
        device, device_name, free = "none", "none", {}
    else:
        device, device_name, free = hardware()
        trouble, seconds = train_in_worker()
    return Findings(
        versions=found,
        device=device,
        device_name=device_name,
        backend=backend,
        free=free,
        trouble=trouble,
        seconds=seconds,
    )


def version(package: str) -> str | None:
    """Return the installed version of `package`, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def hardware() -> tuple[str, str, dict[str, int | None]]:
    """Return kind and name of the device, and the free memory of host and GPU in bytes."""
    import torch

    from memlab.device import resolve_device
    from memlab.engine.environment import environment
    from memlab.engine.host_memory import free_bytes

    device = resolve_device("auto")
    free = {"host": free_bytes()}
    if device.type == "cuda":
        free["GPU"] = torch.cuda.mem_get_info(device)[0]
    return device.type, environment(device)["device_name"], free


def chart_backend(found: dict[str, str | None]) -> str:
    """Return how the bench would draw in JupyterLab: "plotly", "image" or "none"."""
    if wish := os.environ.get("MEMLAB_CHARTS"):
        if wish not in BACKENDS:
            raise UsageError(
                f"the environment variable MEMLAB_CHARTS={wish!r} must be one of {', '.join(BACKENDS)}; "
                "set one of these or unset it."
            )
        return wish
    if not found["ipywidgets"]:
        return "none"
    if found["plotly"] and found["anywidget"]:
        return "plotly"
    return "image" if found["matplotlib"] else "none"


def train_in_worker() -> tuple[str | None, float]:
    """Train two steps in a worker process; return what went wrong (None: nothing) and the seconds."""
    from memlab.engine.client import Worker
    from memlab.events import Failed, Finished
    from memlab.plan import Plan

    began = time.perf_counter()
    worker = Worker()
    try:
        worker.run(Plan(steps=2))
        while (passed := time.perf_counter() - began) < WORKER_SECONDS:
            for event in worker.events():
                if isinstance(event, (Finished, Failed)):
                    return (event.message if isinstance(event, Failed) else None), passed
            time.sleep(0.02)
    finally:
        worker.close()
    return (
        f"a run of two steps did not end within {WORKER_SECONDS:.0f} s; close other programs and try again.",
        passed,
    )


def rows(findings: Findings) -> list[tuple[str, str]]:
    """Return the findings as lines of the report."""
    ran = (
        f"started and trained two steps in {findings.seconds:.1f} s" if findings.trouble is None else "FAILED"
    )
    return [
        ("memlab", memlab.__version__),
        ("python", f"{platform.python_version()} ({platform.platform(terse=True)})"),
        *((name, found or "not installed") for name, found in findings.versions.items()),
        ("device", f"{findings.device} ({findings.device_name})"),
        *(
            (f"free memory, {name}", format_bytes(free) if free else "unknown")
            for name, free in findings.free.items()
        ),
        ("charts in JupyterLab", findings.backend),
        ("worker process", ran),
        ("code word", code_word(findings)),
    ]


def code_word(findings: Findings) -> str:
    """Return the main facts as one word that a learner can send back and a teacher can read."""
    torch_version = (findings.versions["torch"] or "none").partition("+")[0]
    kernel = (findings.versions["ipykernel"] or "none").partition(".")[0]
    parts = [
        f"m{memlab.__version__}",
        f"py{sys.version_info.major}.{sys.version_info.minor}",
        f"torch{torch_version}",
        findings.device,
        findings.backend,
        f"kernel{kernel}",
        "ok" if findings.trouble is None else "broken",
    ]
    return "-".join(parts)
