"""What the bench remembers of a run: while it goes on, from its events; afterwards, its Run."""

import math
from dataclasses import dataclass, field, replace

from memlab.events import Event, Finished, Notice, Started, StepCommunication, StepFinished, StepMemory
from memlab.plan import Plan
from memlab.run import Run
from memlab.trace import Breakdown
from memlab.ui.rank_record import RankRecord

LONGEST_NAME = 40
"""Letters of a run's name that legends and tables show."""
SPEED_WINDOW = 8
"""Optimizer steps over which the shown speed is averaged."""


@dataclass(eq=False)
class Record:
    """One run of the bench, as far as it has come."""

    letter: str
    plan: Plan
    name: str = ""
    pinned: bool = False
    device: str = ""
    samples_seen: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    loss_scales: list[float] = field(default_factory=list)
    """One a step; empty without a scaler."""
    step_peaks: dict[int, int] = field(default_factory=dict)
    """Peak of live bytes of each optimizer step, by its number from 0."""
    allocated: dict[int, int] = field(default_factory=dict)
    """The allocator's peak within a step; of the steps whose curve was sent."""
    reserved: dict[int, int] = field(default_factory=dict)
    """What the allocator held at the end of a step; of the steps whose curve was sent."""
    memory: StepMemory | None = None
    """Of the last step that was metered."""
    peak: Breakdown | None = None
    """Largest instant so far."""
    run: Run | None = None
    """None until the run has finished."""
    prediction: Run | None = None
    """What was predicted for its plan on its device; None where nothing was, or not yet."""
    stopped: bool = False
    notices: list[str] = field(default_factory=list)
    speeds: list[tuple[int, float]] = field(default_factory=list)
    """(samples, seconds) of the last few steps."""
    ranks: RankRecord | None = None
    """What its ranks exchanged; None where it has one."""

    def __post_init__(self) -> None:
        if self.plan.world_size > 1:
            self.ranks = RankRecord(self.plan)

    @property
    def label(self) -> str:
        """Its letter, its name or, without one, what sets its plan apart; and why it is not compared."""
        words = f"{self.letter} {shorten(self.name, LONGEST_NAME) or describe(self.plan)}"
        return f"{words}, {self.stopped_inside}" if self.stopped_inside else words

    @property
    def samples_per_second(self) -> float:
        """Mean over the last few steps; 0 before the first."""
        seconds = sum(seconds for _, seconds in self.speeds)
        return sum(samples for samples, _ in self.speeds) / seconds if seconds else 0.0

    @property
    def predicted_peak(self) -> int | None:
        """The predicted peak of the steps that were metered, in bytes; None without a prediction.

        None too where Stop broke off the step that holds the peak: whole steps are predicted.
        """
        if self.prediction is None or self.stopped_inside:
            return None
        peaks = self.prediction.step_peaks
        # Where batches differ in shape, only the steps that were traced are known one by one.
        known = len(peaks) == self.prediction.plan.steps
        made = peaks[: max(1, len(self.step_peaks))] if known else ()
        return max(made, default=self.prediction.peak.total)

    @property
    def difference(self) -> int | None:
        """Measured minus predicted peak, in bytes; None where either is missing."""
        if self.predicted_peak is None or self.peak is None:
            return None
        return self.peak.total - self.predicted_peak

    @property
    def stopped_inside(self) -> str:
        """Name the step that Stop broke off, where that step holds the peak; "" everywhere else."""
        broken_off = self.stopped and self.peak is not None and self.peak.step >= len(self.losses)
        return f"stopped inside step {self.peak.step + 1}" if broken_off else ""

    @property
    def first_bad_step(self) -> int | None:
        """The first optimizer step (from 0) whose loss is NaN or infinite; None: all are finite."""
        bad = (step for step, loss in enumerate(self.losses) if not math.isfinite(loss))
        return next(bad, None)

    def add(self, event: Event) -> None:
        """Take in what `event` says."""
        match event:
            case Started():
                self.device, self.plan = event.device, event.plan
            case Notice() if event.kind != "loss-not-finite":  # the red line says it, and stops the run
                self.notices.append(event.message)
            case StepFinished():
                self._add_step(event)
            case StepMemory():
                self._add_memory(event)
            case StepCommunication() if self.ranks is not None:
                self.ranks.add(event)
            case Finished():
                self.run, self.peak, self.stopped = event.run, event.run.peak, event.stopped
                self.step_peaks = dict(enumerate(event.run.step_peaks))
            case _:
                pass  # the bench says it; what came before stays

    def _add_step(self, step: StepFinished) -> None:
        self.samples_seen.append(step.samples_seen)
        self.losses.append(step.loss)
        if step.loss_scale is not None:
            self.loss_scales.append(step.loss_scale)
        self.speeds = [*self.speeds, (step.samples, step.seconds)][-SPEED_WINDOW:]

    def _add_memory(self, memory: StepMemory) -> None:
        peak = Breakdown.from_dict(memory.peak)
        self.memory = memory
        self.step_peaks.update(memory.earlier_peaks)
        self.step_peaks[memory.step] = peak.total
        self.allocated[memory.step] = memory.allocated
        self.reserved[memory.step] = memory.reserved
        if self.peak is None or peak.total > self.peak.total:
            self.peak = peak

    def forget_trace(self) -> None:
        """Drop the run's trace, most of its size; what the figures show stays."""
        if self.run is not None and self.run.trace is not None:
            self.run = replace(self.run, trace=None)


def describe(plan: Plan) -> str:
    """Say in a few words what sets `plan` apart: batch, precision, and what is not the default."""
    usual = Plan(model=plan.model)
    ranks = f" x {plan.world_size} ranks" if plan.world_size > 1 else ""
    words = [f"{plan.micro_batch_size} x {plan.gradient_accumulation_steps}{ranks}", plan.precision]
    if plan.activation_checkpointing != "none":
        words.append(f"ckpt {plan.activation_checkpointing}")
    fields = ("optimizer", "norm", "data_parallel", "gradient_sync")
    words += [getattr(plan, name) for name in fields if getattr(plan, name) != getattr(usual, name)]
    return " ".join(words if plan.model == Plan().model else [plan.model, *words])


def shorten(text: str, longest: int) -> str:
    """Return `text` in `longest` letters at most.

    >>> shorten("half the batch", 8)
    'half ...'
    """
    return text if len(text) <= longest else text[: longest - 3] + "..."


def letter(number: int) -> str:
    """Return the name of run `number`, counted from 0 as spreadsheets name columns.

    >>> letter(0), letter(25), letter(26)
    ('A', 'Z', 'AA')
    """
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("A") + digit) + text
    return text
