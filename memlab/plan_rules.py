"""What makes a Plan possible: defaults that depend on the model, and one rule a function."""

import math
import re
import reprlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, get_args

from memlab import plan as plans
from memlab.catalog import MODELS, ModelCard
from memlab.plan import PlanError
from memlab.plan_ranks import ranks

if TYPE_CHECKING:
    from memlab.plan import Plan

CHOICES: dict[str, tuple[str, ...]] = {
    "precision": get_args(plans.Precision),
    "optimizer": get_args(plans.Optimizer),
    "schedule": get_args(plans.Schedule),
    "zero_grad": get_args(plans.ZeroGrad),
    "batch_norm_statistics": get_args(plans.BatchNormStatistics),
    "gradient_precision": get_args(plans.GradientPrecision),
    "optimizer_state_precision": get_args(plans.StatePrecision),
    "data_parallel": get_args(plans.DataParallel),
    "gradient_sync": get_args(plans.GradientSync),
}
OPTIONAL = ("gradient_precision", "optimizer_state_precision", "sequence_length")
WHOLE_NUMBERS = {
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "world_size": 1,
    "bucket_cap_mb": 1,
    "sequence_length": 1,
    "loss_scale_growth_interval": 1,
    "lora_rank": 0,
    "loss_chunks": 1,
    "warmup_steps": 0,
    "steps": 1,
    "seed": 0,
}
SWITCHES = ("master_weights", "gradient_as_bucket_view", "find_unused_parameters", "sync_batch_norm")
OPTIONAL_SWITCHES = ("foreach", "fused")
FP32_LARGEST = float.fromhex("0x1.fffffep127")
LARGEST_LEARNING_RATE = 1e37  # AdamW's first update multiplies it by ten before torch makes it FP32
DEVICE = r"auto|cpu|cuda(:([0-9]|[1-9][0-9]|1[01][0-9]|12[0-7]))?"  # torch counts devices in one byte
DEVICE_RULE = "must be 'auto', 'cpu', 'cuda' or 'cuda:N' with N from 0 to 127"


def defaults(plan: "Plan") -> dict[str, Any]:
    """Return the fields that were left None and that the model decides."""
    card = MODELS.get(plan.model) if isinstance(plan.model, str) else None
    if card is None:
        return {
            "data": "custom" if plan.data is None else plan.data,
            "norm": "none" if plan.norm is None else plan.norm,
        }
    return {
        "data": card.data[0] if plan.data is None else plan.data,
        "norm": card.norms[0] if plan.norm is None else plan.norm,
        "sequence_length": card.sequence_length if plan.sequence_length is None else plan.sequence_length,
    }


def check(plan: "Plan") -> None:
    """Raise PlanError for the first rule that `plan` breaks."""
    for rule in RULES:
        for sentence in rule(plan):
            raise PlanError(sentence)


def accumulation_steps(global_batch_size: int, micro_batch_size: int, world_size: int) -> int:
    """Return K = global batch / (micro-batch x world size); raise PlanError where it does not divide."""
    sizes = {
        "global_batch_size": global_batch_size,
        "micro_batch_size": micro_batch_size,
        "world_size": world_size,
    }
    for name, size in sizes.items():
        for sentence in _whole_number(name, size, 1):
            raise PlanError(sentence)
    unit = micro_batch_size * world_size
    if global_batch_size % unit == 0:
        return global_batch_size // unit
    below = global_batch_size // unit * unit
    nearest = f"{below} and {below + unit}" if below else f"{unit}"
    raise PlanError(
        f"global_batch_size={global_batch_size} is not a multiple of micro_batch_size x world_size = "
        f"{micro_batch_size} x {world_size} = {unit}; the nearest that {'are' if below else 'is'}: {nearest}."
    )


def _whole_number(name: str, value: Any, least: int) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int):
        yield f"{name}={value!r} must be a whole number, {least} or more."
    elif value < least:
        yield f"{name}={value} must be at least {least}."


def _whole_numbers(plan: "Plan") -> Iterator[str]:
    for name, least in WHOLE_NUMBERS.items():
        value = getattr(plan, name)
        if value is not None or name not in OPTIONAL:
            yield from _whole_number(name, value, least)


def _choices(plan: "Plan") -> Iterator[str]:
    for name, allowed in CHOICES.items():
        value = getattr(plan, name)
        if value not in allowed and not (value is None and name in OPTIONAL):
            yield f"{name}={value!r} must be one of {_listed(allowed)}."


def _switches(plan: "Plan") -> Iterator[str]:
    for name in SWITCHES + OPTIONAL_SWITCHES:
        value = getattr(plan, name)
        if not isinstance(value, bool) and not (value is None and name in OPTIONAL_SWITCHES):
            yield f"{name}={value!r} must be True or False{' or None' if name in OPTIONAL_SWITCHES else ''}."


def _number(
    name: str, value: Any, rule: str, holds: Callable[[float], bool], largest: float = FP32_LARGEST
) -> Iterator[str]:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or value in (math.inf, -math.inf) or not holds(value):
        yield f"{name}={value!r} must be {rule}."
    elif value > largest:
        yield f"{name}={reprlib.repr(value)} must be at most {largest:.6g}: torch computes with it in FP32."


def _numbers(plan: "Plan") -> Iterator[str]:
    yield from _number(
        "learning_rate", plan.learning_rate, "a number above 0", lambda x: x > 0, LARGEST_LEARNING_RATE
    )
    yield from _number(
        "dropout", plan.dropout, "a number from 0 up to, not including, 1", lambda x: 0 <= x < 1
    )
    yield from _number(
        "momentum", plan.momentum, "a number from 0 up to, not including, 1", lambda x: 0 <= x < 1
    )
    yield from _number("initial_loss_scale", plan.initial_loss_scale, "a number above 0", lambda x: x > 0)
    if plan.clip_norm is not None:
        yield from _number(
            "clip_norm", plan.clip_norm, "a number above 0, or None for no clipping", lambda x: x > 0
        )


def _model_and_data(plan: "Plan") -> Iterator[str]:
    if plan.model == "custom":
        if plan.data != "custom":
            yield f"data={plan.data!r} does not go with model='custom': the Workload brings its data; leave data out."
        if plan.norm not in get_args(plans.Norm):
            yield f"norm={plan.norm!r} must be one of {_listed(get_args(plans.Norm))}."
        return
    card = MODELS.get(plan.model) if isinstance(plan.model, str) else None
    if card is None:
        yield f"model={plan.model!r} is not known; choose one of {_listed((*MODELS, 'custom'))}."
        return
    yield from _data(plan, card)
    if plan.norm not in card.norms:
        yield f"norm={plan.norm!r} does not go with model={plan.model!r}; choose one of {_listed(card.norms)}."
    if card.sequence_length is None and plan.sequence_length is not None:
        yield f"sequence_length={plan.sequence_length} does not go with model={plan.model!r}, which reads no text; leave it out."
    if card.context is not None and (plan.sequence_length or 0) > card.context:
        yield (
            f"sequence_length={plan.sequence_length} is longer than model={plan.model!r} has positions for: "
            f"choose {card.context} or less."
        )
    if plan.lora_rank and not card.takes_adapters:
        yield (
            f"lora_rank={plan.lora_rank} needs attention or MLP matrices of a transformer; "
            f"model={plan.model!r} has none: set it to 0."
        )


def _data(plan: "Plan", card: ModelCard) -> Iterator[str]:
    shown = tuple(f"{name}PATH" if name.endswith(":") else name for name in card.data)
    path = plan.data.removeprefix("file:") if isinstance(plan.data, str) else ""
    named = plan.data in card.data and plan.data != "file:"
    is_file = isinstance(plan.data, str) and plan.data.startswith("file:") and path and "file:" in card.data
    if not named and not is_file:
        yield f"data={plan.data!r} does not go with model={plan.model!r}; choose one of {_listed(shown)}."


def _checkpointing(plan: "Plan") -> Iterator[str]:
    value = plan.activation_checkpointing
    if value in ("none", "full", "selective"):
        return
    if not isinstance(value, str) or not re.fullmatch(r"every-([2-9]|[1-9]\d+)", value):
        yield (
            f"activation_checkpointing={value!r} must be 'none', 'full', 'selective', or 'every-N' with N of 2 "
            "or more ('full' is every block)."
        )


def _loss_chunks(plan: "Plan") -> Iterator[str]:
    if plan.loss_chunks == 1:
        return
    if plan.model == "custom":
        yield (
            f"loss_chunks={plan.loss_chunks} does not reach into a Workload's own loss: call "
            "memlab.cross_entropy.chunked_cross_entropy in its loss_sum, and leave loss_chunks out."
        )
    elif MODELS[plan.model].family != "gpt":
        yield (
            f"loss_chunks={plan.loss_chunks} needs a model that predicts the next token of a text; "
            f"model={plan.model!r} is none: set it to 1."
        )
    elif plan.loss_chunks > (tokens := plan.micro_batch_size * (plan.sequence_length or 1)):
        yield (
            f"loss_chunks={plan.loss_chunks} is more than micro_batch_size x sequence_length = {tokens} tokens: "
            f"choose {tokens} or less."
        )


def _precision(plan: "Plan") -> Iterator[str]:
    for name, off in (
        ("master_weights", False),
        ("gradient_precision", None),
        ("optimizer_state_precision", None),
    ):
        if getattr(plan, name) != off and plan.precision != "bf16-true":
            yield (
                f"{name}={getattr(plan, name)!r} needs precision='bf16-true': with {plan.precision!r} weights, "
                "gradients and optimizer state are FP32 already."
            )
    if plan.master_weights and plan.optimizer_state_precision == "bf16":
        yield "optimizer_state_precision='bf16' does not go with master_weights=True: the state follows the FP32 weights; leave it out."


def _optimizer(plan: "Plan") -> Iterator[str]:
    if plan.foreach and plan.fused:
        yield "foreach=True and fused=True exclude each other: choose one."
    if plan.momentum and plan.optimizer != "sgd":
        yield f"momentum={plan.momentum} needs optimizer='sgd'; {plan.optimizer!r} has moments of its own: set it to 0."


def _batch_norm(plan: "Plan") -> Iterator[str]:
    if plan.model == "mlp" and plan.norm == "batch" and plan.micro_batch_size == 1:
        yield (
            "micro_batch_size=1 does not go with norm='batch' in model='mlp': one sample has no variance; "
            "set it to 2 or more, or choose norm='group' or norm='layer'."
        )
    statistics = plan.batch_norm_statistics
    if statistics != "per-micro-batch" and plan.norm != "batch" and plan.model != "custom":
        yield f"batch_norm_statistics={statistics!r} needs norm='batch', not {plan.norm!r}."


def _device(plan: "Plan") -> Iterator[str]:
    if not isinstance(plan.device, str) or not re.fullmatch(DEVICE, plan.device):
        yield f"device={plan.device!r} {DEVICE_RULE}."


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(repr(name) for name in names)


RULES: tuple[Callable[["Plan"], Iterator[str]], ...] = (
    _whole_numbers,
    _choices,
    _switches,
    _numbers,
    _model_and_data,
    _checkpointing,
    _loss_chunks,
    _precision,
    _optimizer,
    _batch_norm,
    _device,
    ranks,
)
