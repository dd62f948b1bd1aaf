"""Where nothing fits: what comes nearest, and which changes would help. Each is tried before it is said."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from memlab.catalog import MODELS
from memlab.memory.cards import CARDS, Card
from memlab.plan import Plan, PlanError
from memlab.planner.candidates import Combination
from memlab.planner.fitting import Fitting
from memlab.planner.proposal import Fit, NothingFits
from memlab.units import format_bytes

LORA_RANK = 16
SHORTEST = 128
"""Tokens below which no shorter text is proposed."""


def nothing_fits(tried: Sequence[Combination], fitting: Fitting) -> NothingFits:
    """Return the error that names the combination which needs least, and what would make it fit."""
    smallest = [fitting.fit(next(iter(combination.values()))) for combination in tried]
    nearest = min(smallest, key=lambda fit: (fit.needed_bytes, fit.plan.to_json()))
    states = sum(nearest.peak[name] for name in ("parameters", "gradients", "optimizer_state"))
    changes = list(_changes(nearest, fitting))
    return NothingFits(
        f"nothing fits {fitting.card.title}: the nearest, {_named(nearest.plan)}, needs "
        f"{format_bytes(nearest.needed_bytes)} where {format_bytes(nearest.available_bytes)} are left of the card, "
        f"{format_bytes(states)} of its peak for weights, gradients and optimizer state; {_advice(changes)}.",
        nearest,
    )


def _named(plan: Plan) -> str:
    update = "fused" if plan.fused else "foreach" if plan.foreach else "default"
    return (
        f"micro-batch {plan.micro_batch_size} x K {plan.gradient_accumulation_steps} in {plan.precision} with "
        f"{plan.activation_checkpointing} checkpointing and {update} {plan.optimizer}"
    )


def _advice(changes: list[str]) -> str:
    if not changes:
        return "no shorter text, adapters or card of the table helps: choose a smaller model"
    return f"it fits with {' or '.join(changes)}"


def _changes(nearest: Fit, fitting: Fitting) -> Iterator[str]:
    """Yield the changes that make the nearest plan fit, each alone."""
    plan = nearest.plan
    length = plan.sequence_length
    while length is not None and length >= 2 * SHORTEST:
        length //= 2
        if _would_fit(plan, fitting, sequence_length=length):
            yield f"sequence_length={length}"
            break
    if not plan.lora_rank and MODELS[plan.model].takes_adapters:
        if _would_fit(plan, fitting, lora_rank=LORA_RANK):
            yield f"lora_rank={LORA_RANK}"
    if larger := _smallest_card(nearest):
        yield f"card={larger.name!r}"


def _would_fit(plan: Plan, fitting: Fitting, **changes: int) -> bool:
    try:
        changed = replace(plan, **changes)
    except PlanError:
        return False
    return fitting.fits(fitting.fit(changed))


def _smallest_card(nearest: Fit) -> Card | None:
    """Return the card of the table with the least memory on which the nearest plan fits."""
    bf16 = nearest.plan.precision.startswith("bf16")
    enough = [
        card
        for card in CARDS.values()
        if card.memory_bytes > nearest.needed_bytes and (card.has_bf16 or not bf16)
    ]
    for card in sorted(enough, key=lambda card: (card.memory_bytes, card.name)):
        there = Fitting(card)
        fit = there.fit(nearest.plan)
        if there.fits(fit) and fit.headroom_bytes >= nearest.ddp_bucket_bytes - fit.ddp_bucket_bytes:
            return card
    return None
