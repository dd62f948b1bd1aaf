"""Check memlab on a GPU within five minutes and keep a record: `make gpu-check PYTHON=python3`.

Needs torch, numpy and pytest alone; installs nothing. Writes docs/gpu/DEVICE.json and .md, and the
allocator's events of one small run as tests/gpu/fixtures/DEVICE.json.
"""

import json
import os
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # memlab need not be installed

TESTS_SECONDS = 120
"""Limit for the tests."""
PREDICTIONS_SECONDS = 60
"""Limit for the predictions."""
GRID_UNTIL_SECONDS = 200
"""No plan of the grid starts later than this after the program did."""
SMALL: dict[str, Any] = {"model": "mlp", "steps": 2, "micro_batch_size": 64, "gradient_accumulation_steps": 2}
PEAKS = ("peak", "peak_allocated", "peak_reserved")
COST: dict[str, Any] = {"model": "gpt-tiny", "steps": 30, "micro_batch_size": 8}
GRID: dict[str, dict[str, Any]] = {
    "baseline": {"micro_batch_size": 32},
    "accumulation": {"micro_batch_size": 8, "gradient_accumulation_steps": 4},
    "bf16-mixed": {"micro_batch_size": 32, "precision": "bf16-mixed"},
    "fp16-mixed": {"micro_batch_size": 32, "precision": "fp16-mixed"},
    "bf16-true": {"micro_batch_size": 32, "precision": "bf16-true"},
    "checkpointing": {"micro_batch_size": 32, "activation_checkpointing": "full"},
    "selective": {"micro_batch_size": 32, "activation_checkpointing": "selective"},
    "foreach off": {"micro_batch_size": 32, "foreach": False},
    "fused": {"micro_batch_size": 32, "fused": True},
    "all together": {
        "micro_batch_size": 8,
        "gradient_accumulation_steps": 4,
        "precision": "bf16-mixed",
        "activation_checkpointing": "full",
    },
}
COLUMNS = ("plan", *PEAKS, "samples_per_second", "last_loss")
EVENT_KINDS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free")


def main() -> int:
    """Run the parts in order; return the exit status of the tests."""
    started = time.monotonic()
    try:
        import torch
    except ImportError:
        print(f"gpu-check: {sys.executable} has no torch; name a Python that has: make gpu-check PYTHON=...")
        return 2
    if not torch.cuda.is_available():
        print(f"gpu-check: skipped, torch {torch.__version__} sees no CUDA device.")
        return 0
    # First of all, while this process has not touched the GPU: the allocator starts empty.
    keep(ROOT / "tests/gpu/fixtures", {**environment(), **allocator_events()})
    status = run_tests()
    record = {
        **environment(),
        "tests_exit_status": status,
        "grid": with_predictions(grid(started)),
        "meter_overhead": meter_overhead(),
        "seconds": round(time.monotonic() - started),
    }
    path = keep(ROOT / "docs/gpu", record)
    path.with_suffix(".md").write_text(as_page(record), encoding="utf-8")
    print(as_page(record))
    return status


def environment() -> dict[str, Any]:
    """Return what the figures depend on."""
    import torch

    return {
        "device": torch.cuda.get_device_name(),
        "compute_capability": list(torch.cuda.get_device_capability()),
        "device_memory_bytes": torch.cuda.get_device_properties(0).total_memory,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
        "date": date.today().isoformat(),
    }


def run_tests() -> int:
    """Run the tests marked gpu in a process of their own; return pytest's exit status."""
    paths = [os.environ.get("PYTHONPATH", ""), str(ROOT)]
    # Warnings of torch and pytest releases that we did not choose are shown, not errors.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default", "tests/gpu"]
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    try:
        return subprocess.run(
            [*command, "--ignore=tests/ui"], cwd=ROOT, env=here, timeout=TESTS_SECONDS
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"gpu-check: the tests were broken off after {TESTS_SECONDS} s.")
        return 1


def grid(started: float) -> list[dict[str, Any]]:
    """Measure gpt-small under each plan of GRID; a plan that comes too late says so."""
    import torch

    import memlab

    rows = []
    for name, fields in GRID.items():
        if time.monotonic() - started > GRID_UNTIL_SECONDS:
            rows.append({"plan": name, "left_out": "no time left"})
            continue
        torch.cuda.empty_cache()
        run = memlab.measure(memlab.Plan(model="gpt-small", steps=6, device="cuda", **fields))
        rows.append(
            {
                "plan": name,
                "peak": run.peak.total,
                "peak_allocated": run.peak_allocated,
                "peak_reserved": run.peak_reserved,
                "samples_per_second": round(run.samples_per_second, 1),
                "last_loss": run.losses[-1],
                "by_category": dict(run.peak),
                "device_bytes": dict(run.device_bytes),
            }
        )
    return rows


def with_predictions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to each row what `predict` says of its plan, made in a process that sees no GPU."""
    import torch

    command = [sys.executable, __file__, "--predict", torch.cuda.get_device_name()]
    blind = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "MEMLAB_DEVICE": "cpu"}
    try:
        child = subprocess.run(
            command, env=blind, capture_output=True, text=True, timeout=PREDICTIONS_SECONDS
        )
    except subprocess.TimeoutExpired:
        print(f"gpu-check: the predictions were broken off after {PREDICTIONS_SECONDS} s.")
        return rows
    if child.returncode:
        print(f"gpu-check: no predictions: {child.stderr.strip().splitlines()[-1]}")
        return rows
    predicted = json.loads(child.stdout)
    return [{**row, "predicted": predicted[row["plan"]]} for row in rows]


def predictions(card: str) -> dict[str, dict[str, int]]:
    """Return the predicted peaks of each plan of GRID on `card`, bytes."""
    import memlab

    rows = {}
    for name, fields in GRID.items():
        run = memlab.predict(memlab.Plan(model="gpt-small", steps=6, **fields), card=card)
        rows[name] = {"peak": run.peak.total, **{peak: getattr(run, peak) for peak in PEAKS[1:]}}
    return rows


def meter_overhead() -> dict[str, float]:
    """Return the median seconds of a gpt-tiny step, bare and metered, and their ratio."""
    import memlab
    from memlab.engine.measure import measure_events
    from memlab.events import StepFinished

    def step_seconds(events: Any) -> float:
        seconds = [event.seconds for event in events if isinstance(event, StepFinished)]
        return median(seconds[5:])  # the first ones choose kernels

    plan = memlab.Plan(device="cuda", **COST)
    bare = step_seconds(memlab.train(plan))
    metered = step_seconds(measure_events(plan))
    return {"bare_seconds": bare, "metered_seconds": metered, "ratio": metered / bare}


def allocator_events() -> dict[str, Any]:
    """Return every event of the CUDA allocator in one small run that started with an empty cache.

    Events are [kind, block number, bytes]; blocks are numbered by first appearance of their address.
    """
    import torch

    import memlab

    torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=100_000)
    try:
        for _ in memlab.train(memlab.Plan(device="cuda", **SMALL)):
            pass
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
    finally:
        torch.cuda.memory._record_memory_history(None)
    numbers: dict[int, int] = {}
    events = [
        [event["action"], numbers.setdefault(event["addr"], len(numbers)), event["size"]]
        for event in trace
        if event["action"] in EVENT_KINDS
    ]
    statistics = torch.cuda.memory_stats()
    peaks = {
        name: statistics[f"{name}.all.peak"]
        for name in ("allocated_bytes", "reserved_bytes", "requested_bytes")
    }
    return {"plan": SMALL, "events": events, "peaks": peaks}


def keep(folder: Path, record: dict[str, Any]) -> Path:
    """Write `record` under the device's name in `folder`; return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "-".join(record["device"].lower().split())
    path = folder / f"{name}.json"
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    return path


def as_page(record: dict[str, Any]) -> str:
    """Return the record as a Markdown page."""
    cost = record["meter_overhead"]
    rows = [
        " | ".join(cell(row.get(column, row.get("left_out", ""))) for column in COLUMNS)
        for row in record["grid"]
    ]
    return "\n".join(
        [
            f"# {record['device']}",
            "",
            f"Measured on {record['date']} by `make gpu-check`: torch {record['torch']}, CUDA {record['cuda']}, "
            f"Python {record['python']}; tests ended with status {record['tests_exit_status']}; "
            f"{record['seconds']} s in all.",
            "",
            "gpt-small, 32 samples a step, 6 steps; bytes. `peak` counts live tensors as requested, "
            "`peak_allocated` as the allocator rounds them, `peak_reserved` what it took from the device.",
            "",
            f"| {' | '.join(COLUMNS)} |",
            f"|{' --- |' * len(COLUMNS)}",
            *(f"| {row} |" for row in rows),
            "",
            *predicted_page(record["grid"]),
            f"A gpt-tiny step takes {cost['bare_seconds'] * 1e3:.1f} ms bare and "
            f"{cost['metered_seconds'] * 1e3:.1f} ms metered: {cost['ratio']:.2f} x.",
            "",
        ]
    )


def predicted_page(rows: list[dict[str, Any]]) -> list[str]:
    """Return the table of predicted peaks and their signed differences from the measured ones."""
    lines = [
        f"| {row['plan']} | "
        + " | ".join(
            f"{row['predicted'][peak]:,} | {100 * (row['predicted'][peak] / row[peak] - 1):+.2f} %"
            for peak in PEAKS
        )
        + " |"
        for row in rows
        if "predicted" in row and "peak" in row
    ]
    if not lines:
        return []
    heads = " | ".join(f"{peak} | difference" for peak in PEAKS)
    first = "Predicted before, without a GPU, and the signed difference from what was measured:"
    return [first, "", f"| plan | {heads} |", f"|{' --- |' * (1 + 2 * len(PEAKS))}", *lines, ""]


def cell(value: Any) -> str:
    """Return `value` for a table: whole numbers with separators, others short."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--predict"]:
        print(json.dumps(predictions(sys.argv[2])))
    else:
        sys.exit(main())
