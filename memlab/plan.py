"""A Plan: everything that decides one training run, as a value."""

import json
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from functools import wraps
from typing import Any, Literal, TypeVar

from typing_extensions import Self

Precision = Literal["fp32", "bf16-mixed", "fp16-mixed", "bf16-true"]
Optimizer = Literal["sgd", "adamw"]
Norm = Literal["none", "batch", "group", "layer", "rms"]
Schedule = Literal["constant", "linear", "cosine"]
ZeroGrad = Literal["after_step", "before_forward", "before_backward", "in_place"]
BatchNormStatistics = Literal["per-micro-batch", "frozen", "accumulated"]
GradientPrecision = Literal["bf16", "fp32", "bf16+fp32"]
StatePrecision = Literal["bf16", "fp32"]
DataParallel = Literal["ddp", "zero1", "fsdp2"]
GradientSync = Literal["last-micro-step", "every-micro-step", "backward-only", "never"]
SEVERAL_RANKS = (
    "data_parallel",
    "gradient_sync",
    "gradient_as_bucket_view",
    "bucket_cap_mb",
    "find_unused_parameters",
    "sync_batch_norm",
)
"""Fields that say something of several ranks alone."""
T = TypeVar("T")


class PlanError(ValueError):
    """Says in one sentence which value breaks which rule, and the way out."""


def _explaining_fields(plan: type[T]) -> type[T]:
    """Let `plan` answer an unknown field by PlanError, with the fields that are near; its signature stays."""
    build, known = plan.__init__, [field.name for field in fields(plan)]  # type: ignore[arg-type]

    @wraps(build)
    def build_from_fields(self: T, *positional: Any, **values: Any) -> None:
        for name in values:
            if name not in known:
                raise PlanError(_unknown(name, known))
        build(self, *positional, **values)

    plan.__init__ = build_from_fields  # type: ignore[misc]
    return plan


def _unknown(name: str, known: list[str]) -> str:
    if name == "global_batch_size":
        return "'global_batch_size' is not a field of a Plan, but follows from three; Plan.for_global_batch takes it."
    near = get_close_matches(name, known)
    meant = f"did you mean {' or '.join(map(repr, near))}?" if near else f"the fields are {', '.join(known)}."
    return f"{name!r} is not a field of a Plan; {meant}"


@_explaining_fields
@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that decides one training run. Frozen, hashable; impossible values raise PlanError."""

    model: str = "gpt-tiny"
    """A name from `memlab.catalog.MODELS`, or "custom" for a Workload of your own."""
    data: str | None = None
    """"text", "ragged-text", "text-pairs", "digits", "file:PATH" or "custom"; None: the model's first choice."""
    micro_batch_size: int = 8
    """Samples that one rank pushes through the model at once."""
    gradient_accumulation_steps: int = 1
    """Micro-batches per optimizer step, on each rank (K)."""
    world_size: int = 1
    """Ranks (processes) that train together."""
    data_parallel: DataParallel = "ddp"
    """Several ranks only. "ddp": each holds all of weights, gradients and optimizer state; "zero1": each
    holds the optimizer state of its share of the weights; "fsdp2": each holds its share of all three."""
    gradient_sync: GradientSync = "last-micro-step"
    """When several ranks exchange gradients: once a window; after every micro-batch; "backward-only"
    (the classic bug: no_sync around backward alone, which exchanges every time); never (ranks drift)."""
    gradient_as_bucket_view: bool = False
    """DDP's gradients are views of its buckets from the first exchange on, not a copy beside them."""
    bucket_cap_mb: int = 25
    """Largest bucket that DDP exchanges at once, in MiB; the first one to be ready holds up to 1 MiB."""
    find_unused_parameters: bool = False
    """DDP looks in each forward for weights that get no gradient, instead of failing in the next step."""
    sync_batch_norm: bool = False
    """BatchNorm normalises by the micro-batches of all ranks together (torch's SyncBatchNorm, GPUs only)."""
    sequence_length: int | None = None
    """Tokens per sample (text only); None: the model's own."""
    precision: Precision = "fp32"
    """"fp32"; "bf16-mixed" and "fp16-mixed": autocast over FP32 weights; "bf16-true": BF16 weights."""
    master_weights: bool = False
    """Keep an FP32 copy of the weights that the optimizer updates (bf16-true only)."""
    gradient_precision: GradientPrecision | None = None
    """bf16-true only: "fp32" adds each gradient into an FP32 sum and drops it; "bf16+fp32" keeps
    the BF16 gradients beside that sum; None: the weights' precision."""
    optimizer_state_precision: StatePrecision | None = None
    """bf16-true only: precision of the optimizer's moments; None: that of the weights it updates."""
    initial_loss_scale: float = 65536.0
    """The GradScaler's first scale (fp16-mixed only)."""
    loss_scale_growth_interval: int = 2000
    """Optimizer steps without overflow after which the scale doubles (fp16-mixed only)."""
    activation_checkpointing: str = "none"
    """"none"; "full": recompute every block; "every-N": every N-th block; "selective": recompute
    all but the matrix products."""
    loss_chunks: int = 1
    """Pieces of a micro-batch's tokens for which head and loss are computed one after the other, forward
    and again in backward: the logits of one piece live at a time (models that predict text)."""
    optimizer: Optimizer = "adamw"
    """"sgd" or "adamw", from torch.optim."""
    momentum: float = 0.0
    """SGD's momentum; above 0 it costs one more copy of the weights."""
    foreach: bool | None = None
    """Update all weights at once, with temporaries; None: torch's default (CUDA yes, CPU no)."""
    fused: bool | None = None
    """Update in one fused kernel, without temporaries; None: torch's default (no)."""
    zero_grad: ZeroGrad = "after_step"
    """When the gradients are dropped; "in_place" zeroes them after the step and keeps their memory."""
    clip_norm: float | None = None
    """Largest global norm of the gradient, applied once per optimizer step; None: no clipping."""
    norm: Norm | None = None
    """Normalisation inside the model; None: the model's first choice."""
    batch_norm_statistics: BatchNormStatistics = "per-micro-batch"
    """How often BatchNorm's running statistics move. "per-micro-batch": K times a step, as torch
    does; "frozen": by the first micro-batch of a window only; "accumulated": once, by the moments
    of the whole window."""
    dropout: float = 0.0
    """Probability that an activation is dropped, 0 <= dropout < 1."""
    lora_rank: int = 0
    """Rank of the low-rank adapters on the attention and MLP matrices; 0: train all weights."""
    learning_rate: float = 3e-4
    """Peak learning rate."""
    schedule: Schedule = "constant"
    """Shape after the warm-up, in optimizer steps; linear and cosine end at 0 after `steps`."""
    warmup_steps: int = 0
    """Optimizer steps over which the learning rate rises linearly from 0."""
    steps: int = 20
    """Optimizer steps."""
    seed: int = 0
    """Seeds weights, data order and dropout."""
    device: str = "auto"
    """"auto" (MEMLAB_DEVICE, else CUDA if there is one, else CPU), "cpu", "cuda" or "cuda:N"."""

    def __post_init__(self) -> None:
        from memlab.plan_rules import check, defaults  # they need Plan's choices

        for name, value in defaults(self).items():
            object.__setattr__(self, name, value)
        check(self)

    @property
    def global_batch_size(self) -> int:
        """Samples per optimizer step, over all ranks."""
        return self.micro_batch_size * self.gradient_accumulation_steps * self.world_size

    @property
    def of_one_rank(self) -> Self:
        """The plan of one rank that trains alone: what is for several only is left out."""
        several = {field.name: field.default for field in fields(self) if field.name in SEVERAL_RANKS}
        return replace(self, world_size=1, **several)

    @property
    def checkpoint_every(self) -> int:
        """Every how-many-th block is recomputed: 0 none, 1 all."""
        match self.activation_checkpointing:
            case "none" | "selective":
                return 0
            case "full":
                return 1
            case every:
                return int(every.removeprefix("every-"))

    @classmethod
    def for_global_batch(
        cls, global_batch_size: int, *, micro_batch_size: int = 8, world_size: int = 1, **others: Any
    ) -> Self:
        """Derive K = global batch / (micro-batch x world size); raise PlanError where it does not divide."""
        from memlab.plan_rules import accumulation_steps

        if "gradient_accumulation_steps" in others:
            raise PlanError(
                f"gradient_accumulation_steps={others['gradient_accumulation_steps']!r} is what for_global_batch derives: "
                "leave it out, or say Plan(...) without global_batch_size."
            )
        steps = accumulation_steps(global_batch_size, micro_batch_size, world_size)
        return cls(
            micro_batch_size=micro_batch_size,
            world_size=world_size,
            gradient_accumulation_steps=steps,
            **others,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Build a plan from `to_dict`'s result; raise PlanError on anything else."""
        if not isinstance(values, dict):
            raise PlanError(f"a plan is a JSON object of field names and values, not {values!r}.")
        return cls(**{str(name): value for name, value in values.items()})

    def to_json(self) -> str:
        """Return the plan as one line of JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; raise PlanError on anything else."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise PlanError(f"a plan is a JSON object, and this text is no JSON: {error}.") from None
        return cls.from_dict(values)
