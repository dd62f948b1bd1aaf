"""Where nothing fits: what comes nearest, and which changes would help. Each is tried before it is said."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from memlab.catalog import MODELS
from memlab.memory.cards import CARDS, Card
from memlab.plan import Plan, PlanError
from memlab.planner.candidates import Combination
from memlab.planner.fitting import Fitting, states_bytes
from memlab.planner.proposal import Fit, NothingFits
from memlab.units import format_bytes

LORA_RANK = 16
LOSS_CHUNKS = 8
SHORTEST = 128
"""Tokens below which no shorter text is proposed."""


def nothing_fits(tried: Sequence[Combination], fitting: Fitting) -> NothingFits:
    """Return the error that names the combination which needs least, and what would make it fit."""
    nearest = _nearest([next(iter(combination.values())) for combination in tried], fitting)
    states = sum(nearest.peak[name] for name in ("parameters", "gradients", "optimizer_state"))
    changes = list(_changes(nearest, fitting))
    return NothingFits(
        f"nothing fits {fitting.card.title}: the nearest, {_named(nearest.plan)}, needs "
        f"{format_bytes(nearest.peak_reserved)} where {format_bytes(nearest.available_bytes)} are left of the card, "
        f"{format_bytes(states)} of its peak for weights, gradients and optimizer state; {_advice(changes)}.",
        nearest,
    )


def _nearest(plans: Sequence[Plan], fitting: Fitting) -> Fit:
    """Return what the plan that needs least needs; those whose weights alone need more are not predicted."""
    nearest: Fit | None = None
    for plan in sorted(plans, key=lambda plan: (states_bytes(plan), plan.to_json())):
        if nearest is not None and states_bytes(plan) > nearest.peak_reserved:
            break
        fit = fitting.fit(plan)
        if nearest is None or (fit.peak_reserved, plan.to_json()) < (
            nearest.peak_reserved,
            nearest.plan.to_json(),
        ):
            nearest = fit
    assert nearest is not None
    return nearest


def _named(plan: Plan) -> str:
    update = "fused" if plan.fused else "foreach" if plan.foreach else "default"
    recomputed = "no" if plan.activation_checkpointing == "none" else plan.activation_checkpointing
    return (
        f"micro-batch {plan.micro_batch_size} x K {plan.gradient_accumulation_steps} in {plan.precision} with "
        f"{recomputed} checkpointing and {update} {plan.optimizer}"
    )


def _advice(changes: list[str]) -> str:
    if not changes:
        return "no single change that was tried makes it fit: choose a smaller model"
    return f"it fits with {' or '.join(changes)}"


def _changes(nearest: Fit, fitting: Fitting) -> Iterator[str]:
    """Yield the changes that make the nearest plan fit, each alone."""
    plan = nearest.plan
    for change in _alternatives(plan, fitting.card):
        if _would_fit(plan, fitting, change):
            yield _said(change)
    length = plan.sequence_length
    while length is not None and length >= 2 * SHORTEST:
        length //= 2
        if _would_fit(plan, fitting, {"sequence_length": length}):
            yield f"sequence_length={length}"
            break
    if larger := _smallest_card(nearest, fitting):
        yield f"card={larger.name!r}"


def _alternatives(plan: Plan, card: Card) -> Iterator[dict[str, Any]]:
    """Yield what the caller may have held fast, and adapters."""
    if plan.micro_batch_size > 1:
        micro_batches = plan.micro_batch_size * plan.gradient_accumulation_steps
        yield {"micro_batch_size": 1, "gradient_accumulation_steps": micro_batches}
    if plan.activation_checkpointing != "full":
        yield {"activation_checkpointing": "full"}
    if plan.precision != "bf16-true" and card.has_bf16:
        yield {"precision": "bf16-true"}
    if plan.loss_chunks == 1 and MODELS[plan.model].family == "gpt":
        yield {"loss_chunks": LOSS_CHUNKS}
    if not plan.lora_rank and MODELS[plan.model].takes_adapters:
        yield {"lora_rank": LORA_RANK}


def _said(change: dict[str, Any]) -> str:
    name, value = next(iter(change.items()))  # K follows from the micro-batch
    return f"{name}={value!r}"


def _would_fit(plan: Plan, fitting: Fitting, change: dict[str, Any]) -> bool:
    try:
        changed = replace(plan, **change)
    except PlanError:
        return False
    return fitting.may_fit(changed) and fitting.fits(fitting.fit(changed))


def _smallest_card(nearest: Fit, fitting: Fitting) -> Card | None:
    """Return the card of the table with the least memory on which the nearest plan fits."""
    bf16 = nearest.plan.precision.startswith("bf16")
    enough = [
        card
        for card in CARDS.values()
        if card.memory_bytes > nearest.peak_reserved and (card.has_bf16 or not bf16)
    ]
    for card in sorted(enough, key=lambda card: (card.memory_bytes, card.name)):
        there = Fitting(card)
        if there.fits(there.fit(nearest.plan)):
            return card
    return None
