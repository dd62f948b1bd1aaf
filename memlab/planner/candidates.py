"""What the planner tries: every combination that the caller leaves open and that can exist."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from memlab.memory.cards import Card
from memlab.plan import Plan, PlanError
from memlab.plan_rules import accumulation_steps

PRECISIONS = ("fp32", "bf16-mixed", "fp16-mixed", "bf16-true")
CHECKPOINTING = ("none", "selective", "full")
UPDATES = ({"foreach": True}, {"fused": True})
"""torch's default on a GPU, and the one that needs no temporaries."""

Combination = dict[int, Plan]
"""One choice of precision, checkpointing and update: its plans by micro-batch size, smallest first."""


def combinations(
    model: str, card: Card, global_batch_size: int, world_size: int, fixed: Mapping[str, Any], samples: int
) -> list[Combination]:
    """Return what can be tried; raise PlanError where nothing can exist, and why.

    Micro-batches divide each rank's share and are no larger than the `samples` of the data.
    """
    sizes = _sizes(global_batch_size, world_size, fixed, samples)
    found, refused = [], []
    for choice in _choices(card, fixed):
        plans = {}
        for size in sizes:
            try:
                plans[size] = Plan.for_global_batch(
                    global_batch_size,
                    **{**fixed, **choice, "model": model, "micro_batch_size": size, "world_size": world_size},
                )
            except PlanError as error:
                refused.append(error)
        if plans:
            found.append(plans)
    if not found:
        raise refused[0]
    return found


def check_fixed(card: Card, fixed: Mapping[str, Any]) -> None:
    """Raise PlanError for fields that the planner cannot take."""
    if "gradient_accumulation_steps" in fixed:
        raise PlanError(
            f"gradient_accumulation_steps={fixed['gradient_accumulation_steps']!r} follows from "
            "global_batch_size, micro_batch_size and world_size: leave it out."
        )
    precision = fixed.get("precision")
    if isinstance(precision, str) and precision.startswith("bf16") and not card.has_bf16:
        raise PlanError(
            f"precision={precision!r} does not go with {card.title}, which has no BF16 of its own; choose "
            "'fp16-mixed', leave precision open, or take a card of compute capability 8.0 or higher."
        )


def _sizes(global_batch_size: int, world_size: int, fixed: Mapping[str, Any], samples: int) -> list[int]:
    if "micro_batch_size" in fixed:
        size = fixed["micro_batch_size"]
        accumulation_steps(global_batch_size, size, world_size)  # raises where it does not divide
        return [size]
    share = accumulation_steps(global_batch_size, 1, world_size)
    return [size for size in range(1, min(share, samples) + 1) if share % size == 0]


def _choices(card: Card, fixed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    precisions = [name for name in PRECISIONS if card.has_bf16 or not name.startswith("bf16")]
    updates = [{}] if {"foreach", "fused"} & fixed.keys() else UPDATES
    for precision, checkpointing, update in product(
        [fixed["precision"]] if "precision" in fixed else precisions,
        [fixed["activation_checkpointing"]] if "activation_checkpointing" in fixed else CHECKPOINTING,
        updates,
    ):
        yield {"precision": precision, "activation_checkpointing": checkpointing, **update}
