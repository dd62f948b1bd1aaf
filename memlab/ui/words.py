"""What the bench says about a run, as plain text."""

import os

from memlab.memory.beyond import beyond_allocator
from memlab.memory.cards import Card
from memlab.plan import Plan
from memlab.run import Run
from memlab.ui.records import Record
from memlab.units import format_bytes, signed_bytes


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
    if record is None or not (record.losses or record.stopped_inside):
        return ""
    words = [f"step {len(record.losses)} of {record.plan.steps}"] if record.losses else []
    if record.samples_per_second:
        words.append(f"{record.samples_per_second:.3g} samples/s")
    if record.peak is not None:
        words.append(f"peak {format_bytes(record.peak.total)}{_beside_prediction(record)}")
    return ", ".join(words)


def _beside_prediction(record: Record) -> str:
    if record.stopped_inside:
        return f" ({record.stopped_inside}, so not compared)"
    if record.predicted_peak is None or record.difference is None:
        return ""
    return f" (predicted {format_bytes(record.predicted_peak)}, difference {signed_bytes(record.difference)})"


def predicting_words(card: Card | None, device: str) -> str:
    """Say what the prediction is for; `device` is what this one is, where that is known."""
    here = {"cpu": "CPU", "": "this device"}.get(device, device)
    return f"predicting for: {card.title if card is not None else here}"


def forecast_words(run: Run, card: Card | None) -> str:
    """Say what was predicted, whether it fits, and what that leaves out."""
    if card is None:
        assumed = run.environment.get("ranks")
        exact = ", exact to the byte" if run.environment.get("device") == "cpu" and not assumed else ""
        said = f"; {assumed}" if assumed else ""
        return f"Predicted on this device: peak {format_bytes(run.peak.total)} of live tensors{exact}{said}."
    beyond = beyond_allocator(card)
    budget = card.memory_bytes - beyond["cuda_context_low"]
    left = budget - run.peak_reserved
    verdict = "fits" if run.fits else "does not fit"
    room = f"{format_bytes(left)} left" if run.fits else f"{format_bytes(-left)} too much"
    return (
        f"Predicted on {card.title}: peak allocated {format_bytes(run.peak_allocated)}, reserved "
        f"{format_bytes(run.peak_reserved)}; {verdict}, {room} of {format_bytes(budget)}. That is the card's memory "
        f"less a CUDA context of {format_bytes(beyond['cuda_context_low'])}, which may grow to "
        f"{format_bytes(beyond['cuda_context_high'])}; left out: a cuBLAS workspace of "
        f"{format_bytes(beyond['cublas_workspace'])}, cuDNN's, and other processes"
        f"{'; ' + run.environment['ranks'] if 'ranks' in run.environment else ''}."
    )


def waiting_words(seconds: float) -> str:
    """Say for how long a prediction has been worked at."""
    return f"predicting: {seconds:.0f} s"


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
