"""Events as a run sends them, and what a bench makes of them, written by hand."""

from memlab.engine.predictor import Prediction
from memlab.events import StepFinished, StepMemory
from memlab.plan import Plan
from memlab.run import Run
from memlab.trace import CATEGORIES, Breakdown
from memlab.ui.records import Record
from memlab.units import MiB


def memory_event(step: int = 0, micro_steps: int = 2, *, reserved: int | None = None) -> StepMemory:
    """Return a saw-tooth: 10 MiB of parameters, and activations that rise to 8 MiB in each forward."""
    position = tuple(float(number) for number in range(4 * micro_steps + 1))
    activations = (0, *((4 * MiB, 8 * MiB, 4 * MiB, 0) * micro_steps))
    layers = {"parameters": (10 * MiB,) * len(position), "activations": activations}
    spans = [
        (phase, micro_step, 4.0 * micro_step + first, 4.0 * micro_step + first + 2)
        for micro_step in range(micro_steps)
        for phase, first in (("forward", 0), ("backward", 2))
    ]
    sizes = {"parameters": 10 * MiB, "activations": 8 * MiB}
    peak = Breakdown(tuple(sizes.get(name, 0) for name in CATEGORIES), "forward", 0, step)
    return StepMemory(
        step=step,
        position=position,
        by_category=tuple(layers.get(name, (0,) * len(position)) for name in CATEGORIES),
        spans=tuple(spans),
        peak=peak.to_dict(),
        peak_position=2.0,
        allocated=peak.total,
        reserved=peak.total if reserved is None else reserved,
    )


def step_event(step: int, loss: float = 5.0, **changes: object) -> StepFinished:
    """Return the end of optimizer step number `step`, of 16 samples."""
    values = {
        "step": step, "epoch": 0, "loss": loss, "micro_steps": 2, "samples": 16, "items": 16,
        "samples_seen": 16 * (step + 1), "learning_rate": 1e-3, "gradient_norm": None, "loss_scale": None,
        "skipped": False, "seconds": 0.5,
    }  # fmt: skip
    return StepFinished(**{**values, **changes})


def record(letter: str = "A", steps: int = 3, **changes: object) -> Record:
    made = Record(letter=letter, plan=Plan(micro_batch_size=8, gradient_accumulation_steps=2))
    for step in range(steps):
        made.add(step_event(step, loss=5.0 - step, **changes))
        made.add(memory_event(step))
    return made


def prediction(plan: Plan, micro_steps: int = 2, *, card: str | None = None) -> Prediction:
    """Return what was predicted for `plan`: the saw-tooth of `memory_event`, twice."""
    memories = tuple(memory_event(step, micro_steps) for step in (0, 1))
    peak = Breakdown.from_dict(memories[0].peak)
    environment = {"device": "cpu" if card is None else f"card:{card}"}
    run = Run(
        plan=plan, source="predicted", losses=(), peak=peak, peak_allocated=peak.total, peak_reserved=peak.total,
        fits=True, peaks_by_phase={}, step_peaks=(peak.total,) * plan.steps, environment=environment,
    )  # fmt: skip
    return Prediction(run, memories)
