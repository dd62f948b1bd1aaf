"""What `train` says as it goes: one small value per happening, one JSON line each."""

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

from memlab.plan import Plan
from memlab.run import Run


@dataclass(frozen=True, kw_only=True)
class Started:
    """The model is built; the first step comes next."""

    plan: Plan
    parameters: int
    """Number of weights."""
    trainable_parameters: int
    device: str


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something that a learner should know: one sentence. `kind` is its short name."""

    kind: str
    message: str


@dataclass(frozen=True, kw_only=True)
class StepFinished:
    """One optimizer step: a window of micro-batches and one update."""

    step: int
    """From 0."""
    epoch: int
    """From 0."""
    loss: float
    """Mean over the items of the window, over all ranks."""
    micro_steps: int
    """Micro-batches in this window; fewer than K in the tail of an epoch."""
    samples: int
    """Samples in this window, over all ranks."""
    items: int
    """Loss terms in this window (tokens that are not ignored, or images), over all ranks."""
    samples_seen: int
    """Since the start of the run, over all ranks."""
    learning_rate: float
    """That this step used."""
    gradient_norm: float | None
    """Global norm before clipping; None without clipping."""
    loss_scale: float | None
    """That this step used; None without a scaler."""
    skipped: bool
    """The scaler found an infinite or NaN gradient: no update, no scheduler step."""
    seconds: float
    """Wall time of the step, metering included."""


@dataclass(frozen=True, kw_only=True)
class StepMemory:
    """Memory during one optimizer step, thinned to a few hundred points so that peaks survive."""

    step: int
    position: tuple[float, ...]
    """Where in the step each point lies, counted in changes of memory from 0."""
    by_category: tuple[tuple[int, ...], ...]
    """Live bytes, one series for each of trace.CATEGORIES, each as long as `position`."""
    spans: tuple[tuple[str, int, float, float], ...]
    """(phase, micro_step, first position, last position), in order."""
    peak: dict[str, Any]
    """The step's largest instant: Breakdown.to_dict()."""
    peak_position: float
    allocated: int
    """Allocator's peak within the step, bytes; on the CPU equal to the peak of live bytes."""
    reserved: int
    """Held by the allocator at the end of the step, bytes; on the CPU equal to `allocated`."""
    earlier_peaks: tuple[tuple[int, int], ...] = ()
    """(step, peak total) of earlier steps whose own StepMemory was dropped for this newer one."""


@dataclass(frozen=True, kw_only=True)
class StepCommunication:
    """What one of several ranks exchanged in one optimizer step: gradients and weights, not counts and losses."""

    step: int
    rank: int
    calls: tuple[int, ...]
    """Exchanges of gradients in each micro-step: DDP's all-reduces, one for each bucket, or FSDP2's reduce-scatters."""
    bytes: tuple[int, ...]
    """Bytes of gradients that this rank handed over in each micro-step."""
    buckets: tuple[int, ...]
    """Bytes of each exchange of gradients, as last exchanged, in the order in which backward came to it."""
    rebuilt: bool
    """DDP has laid its buckets out anew, in the order in which the gradients of the step before came."""
    seconds: float
    """Time in which at least one exchange was under way, waiting for the other ranks included."""
    all_reduces: tuple[tuple[int, float, float], ...]
    """(micro_step, begin, end) of each, in seconds on the machine's clock, which its ranks share."""
    gathers: tuple[int, ...] = ()
    """FSDP2's all-gathers of weights in each micro-step; 0 where each rank holds all weights."""
    gathered_bytes: tuple[int, ...] = ()
    """Bytes of weights that were together after them in each micro-step, this rank's own share included."""
    all_gathers: tuple[tuple[int, float, float], ...] = ()
    """(micro_step, begin, end) of each, as above."""
    reduce_scatters: tuple[tuple[int, float, float], ...] = ()
    """(micro_step, begin, end) of each, as above."""
    phases: tuple[tuple[str, int, float, float], ...] = ()
    """(phase, micro_step, begin, end), in seconds on the same clock; metered runs only."""
    checksum: int | None = None
    """Sum of the bits of all weights after the step: equal on all ranks unless they drift; None where
    each rank holds a share of the weights."""
    peak_by_category: tuple[int, ...] = ()
    """Live bytes at the largest instant of the step on this rank, one for each of trace.CATEGORIES; metered
    runs only."""

    @property
    def peak_bytes(self) -> int:
        """Peak of live bytes in the step on this rank; 0 where the run is not metered."""
        return sum(self.peak_by_category)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The run ended by itself or was stopped; `run` holds all of it."""

    run: Run
    stopped: bool = False


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The run broke off. `message` is one sentence with what to do; `details` may hold a traceback."""

    kind: Literal["out-of-memory", "crash", "plan", "error"]
    message: str
    details: str = ""


Event = Started | Notice | StepFinished | StepMemory | StepCommunication | Finished | Failed
_KINDS = {
    kind.__name__: kind
    for kind in (Started, Notice, StepFinished, StepMemory, StepCommunication, Finished, Failed)
}


def to_json(event: Event) -> str:
    """Return `event` as one line of JSON; floats that JSON cannot hold become "nan", "inf", "-inf"."""
    values = {name: _plain(value) for name, value in vars(event).items()}
    return json.dumps({"event": type(event).__name__, **values}, allow_nan=False)


def from_json(line: str) -> Event:
    """Read what `to_json` wrote."""
    values = json.loads(line)
    kind = _KINDS[values.pop("event")]
    return kind(**{name: _restored(kind, name, value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, (Plan, Run)):
        return value.to_dict()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _restored(kind: type, name: str, value: Any) -> Any:
    if name in ("plan", "run"):
        return (Plan if name == "plan" else Run).from_dict(value)
    if isinstance(value, str) and kind.__annotations__[name] in (float, float | None):
        return float(value)
    return _tuples(value)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
