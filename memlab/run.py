"""A Run: what came of one plan, measured or predicted. Immutable; survives JSON."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from typing_extensions import Self

from memlab.plan import Plan
from memlab.trace import Breakdown, Trace
from memlab.units import format_bytes

Source = Literal["measured", "predicted"]


class RunError(ValueError):
    """Says in one sentence why some text is no Run, and the way out."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """What one process of a run saw."""

    rank: int = 0
    pid: int = 0
    peak: Breakdown
    communication: Mapping[str, int] = field(default_factory=dict)
    """"gradient_exchanges" (all-reduces of a bucket; reduce-scatters with FSDP2), "gradient_bytes" that it handed over
    in them, "weight_gathers" (FSDP2's all-gathers), "weight_bytes" that were together after them, and the "microseconds"
    in which an exchange was under way; empty on one rank."""
    weights_checksum: int | None = None
    """Sum of the bits of all weights at the end: equal on all ranks unless they drift; None on one rank
    and where each holds a share of the weights."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The result of one plan. Bytes are requested bytes of live tensors unless a name says otherwise."""

    plan: Plan
    source: Source
    losses: tuple[float, ...]
    """One loss per optimizer step, per item of its global batch: it does not depend on K."""
    peak: Breakdown
    """The instant of the largest total, over all ranks' largest."""
    peak_allocated: int
    """The allocator's own peak, rounded to its block sizes; on the CPU, which does not round,
    equal to `peak.total`."""
    peak_reserved: int
    """Peak of what the allocator took from the device; on the CPU, where torch keeps no cache,
    equal to `peak_allocated`. The CUDA context and libraries come on top."""
    fits: bool
    """Whether the run ends within the memory of its device."""
    peaks_by_phase: Mapping[str, Breakdown]
    """The largest instant in forward, in backward and in the optimizer step."""
    step_peaks: tuple[int, ...]
    """Peak of live bytes of each optimizer step.

    Predicted: short ends of later epochs count as whole, and where batches differ in shape, steps not traced are left out.
    """
    environment: Mapping[str, str]
    """Device, versions and date of the measurement or prediction."""
    ranks: tuple[Rank, ...] = ()
    trace: Trace | None = None
    """Every change of memory in the steps that are kept: the first two, the peak's and the last. Of rank 0."""
    skipped_steps: tuple[int, ...] = ()
    """Optimizer steps that an infinite or NaN gradient made the scaler skip."""
    notices: tuple[str, ...] = ()
    """Warnings of the run, one sentence each."""
    samples_per_second: float = 0.0
    """Median over the steps after the first, metering included; 0 for a prediction."""
    device_bytes: Mapping[str, int] = field(default_factory=dict)
    """Figures of the whole device, where there are any, each named."""

    def __post_init__(self) -> None:
        # math.nan is one object, so that runs with equal losses are equal also where they are NaN.
        losses = tuple(math.nan if math.isnan(loss) else loss for loss in self.losses)
        object.__setattr__(self, "losses", losses)

    def to_dict(self) -> dict[str, Any]:
        """Return the run for JSON; its keys are the attributes' names."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "plan": self.plan.to_dict(),
            "losses": [_finite(loss) for loss in self.losses],
            "peak": self.peak.to_dict(),
            "peaks_by_phase": {phase: peak.to_dict() for phase, peak in self.peaks_by_phase.items()},
            "step_peaks": list(self.step_peaks),
            "environment": dict(self.environment),
            "ranks": [{**vars(rank), "peak": rank.peak.to_dict()} for rank in self.ranks],
            "trace": self.trace.to_dict() if self.trace is not None else None,
            "skipped_steps": list(self.skipped_steps),
            "notices": list(self.notices),
            "device_bytes": dict(self.device_bytes),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; raise RunError on anything else."""
        if not isinstance(values, Mapping):
            raise RunError(
                f"a run is a JSON object of names and values, not a value of type {type(values).__name__}; {_WAY_OUT}"
            )
        if missing := [field.name for field in fields(cls) if field.name not in values]:
            raise RunError(f"this JSON object is no run, for it lacks {', '.join(missing)}; {_WAY_OUT}")
        try:
            return cls._read(values)
        except (LookupError, TypeError, AttributeError) as error:
            raise RunError(f"this run has a part that is none of memlab's ({error!r}); {_WAY_OUT}") from error

    @classmethod
    def _read(cls, values: Mapping[str, Any]) -> Self:
        return cls(
            **{name: values[name] for name in _PLAIN},
            plan=Plan.from_dict(values["plan"]),
            losses=tuple(float(loss) for loss in values["losses"]),
            peak=Breakdown.from_dict(values["peak"]),
            peaks_by_phase={
                name: Breakdown.from_dict(peak) for name, peak in values["peaks_by_phase"].items()
            },
            step_peaks=tuple(values["step_peaks"]),
            environment=values["environment"],
            ranks=tuple(
                Rank(**{**rank, "peak": Breakdown.from_dict(rank["peak"])}) for rank in values["ranks"]
            ),
            trace=Trace.from_dict(values["trace"]) if values["trace"] is not None else None,
            skipped_steps=tuple(values["skipped_steps"]),
            notices=tuple(values["notices"]),
            device_bytes=values["device_bytes"],
        )

    def to_json(self) -> str:
        """Return the run as JSON; losses that JSON cannot hold become "nan", "inf" and "-inf"."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; `Run.from_json(run.to_json()) == run`. Raises RunError on anything else."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise RunError(
                f"a run is a JSON object, and this text is no JSON ({error}); {_WAY_OUT}"
            ) from None
        return cls.from_dict(values)

    @property
    def peak_place(self) -> str:
        """Say in words when the peak came."""
        return place(self.peak)

    def __repr__(self) -> str:
        rows = [
            f"{name.replace('_', ' '):>22}  {format_bytes(size):>10}"
            for name, size in self.peak.items()
            if size
        ]
        plan = self.plan
        return "\n".join([
            f"Run of {plan.model}: micro-batch {plan.micro_batch_size} x K {plan.gradient_accumulation_steps} "
            f"x {plan.world_size} rank(s), {plan.precision}, {self.source} on {self.environment.get('device', '?')}",
            *rows,
            f"{'peak of live tensors':>22}  {format_bytes(self.peak.total):>10}  ({self.peak_place})",
        ])  # fmt: skip


_WAY_OUT = "read a file that run.to_json() or --json wrote."
_PLAIN = ("source", "peak_allocated", "peak_reserved", "fits", "samples_per_second")


def place(peak: Breakdown) -> str:
    """Say in words when an instant came, micro-steps counted from 1 as people do."""
    match peak.phase:
        case "setup":
            return "before the first step"
        case "optimizer":
            return f"optimizer step {peak.step + 1}"
        case phase:
            return f"{phase} {peak.micro_step + 1} of step {peak.step + 1}"


def _finite(loss: float) -> float | str:
    return loss if math.isfinite(loss) else str(loss)
