"""What the bench says about a run, as plain text."""

import os

from memlab.plan import Plan
from memlab.ui.records import Record
from memlab.units import format_bytes


def device_words(plan: Plan | None, record: Record | None) -> str:
    """Say where the bytes are counted and how exact that is."""
    device = record.device if record is not None and record.device else _asked(plan)
    if device == "cpu":
        return "CPU: exact, measured by storage"
    if device.startswith("cuda"):
        name = record.run.environment.get("device_name", device) if record and record.run else device
        return f"GPU {name}: tensors by storage, and the CUDA allocator"
    return "device: chosen when a run starts"


def _asked(plan: Plan | None) -> str:
    if plan is None or plan.device == "auto":
        return os.environ.get("MEMLAB_DEVICE") or "auto"
    return plan.device


def progress_words(record: Record | None) -> str:
    """Say how far a run is, how fast, and its largest instant."""
    if record is None or not record.losses:
        return ""
    words = [f"optimizer step {len(record.losses)} of {record.plan.steps}"]
    if record.samples_per_second:
        words.append(f"{record.samples_per_second:.3g} samples/s")
    if record.peak is not None:
        words.append(f"peak {format_bytes(record.peak.total)}")
    return ", ".join(words)


def end_words(record: Record) -> str:
    """Say how a run ended."""
    return f"stopped: run {record.letter}" if record.stopped else f"finished: run {record.letter}"


def not_finite_words(record: Record) -> str:
    """Say that the loss left the numbers, and the way out."""
    step = record.first_bad_step
    assert step is not None
    return (
        f"The loss is {record.losses[step]} from optimizer step {step + 1} on, so the run was stopped; "
        f"lower learning_rate={record.plan.learning_rate:.2g}."
    )


def state_words(going: bool, state: str, ending: str) -> str:
    """Say what the bench does; `state` is the worker's."""
    if going:
        return {"starting": "warming up, then running", "paused": "paused"}.get(state, "running")
    return ending or ("warming up" if state == "starting" else "ready")
