"""Does a plan fit a card? One prediction for all plans that need the same memory."""

from collections.abc import Callable
from dataclasses import replace

from memlab.catalog import MODELS
from memlab.engine.predict import predict
from memlab.engine.preflight import least_bytes
from memlab.memory.beyond import beyond_allocator
from memlab.memory.cards import Card
from memlab.plan import Plan
from memlab.planner.proposal import Fit
from memlab.predicting.steps import micro_batches_to_trace
from memlab.run import Run

Progress = Callable[[int, int, Plan], None]
"""Called before each prediction and each count of work: combinations that are decided, of how many, and the plan."""


class Fitting:
    """Predicts on one card, each different need once."""

    def __init__(self, card: Card) -> None:
        self.card = card
        self.available_bytes = card.memory_bytes - beyond_allocator(card)["cuda_context_low"]
        self._fits: dict[Plan, Run] = {}

    def fit(self, plan: Plan, before: Callable[[Plan], None] = lambda plan: None) -> Fit:
        """Return what `plan` would need; `before` is called where that takes a new prediction."""
        alike = same_memory(plan)
        if alike not in self._fits:
            before(plan)
            # The trace is large and not needed any more.
            self._fits[alike] = replace(predict(alike, card=self.card, progress=False), trace=None)
        run = self._fits[alike]
        return Fit(
            plan=plan,
            card=self.card.name,
            peak=run.peak,
            peak_allocated=run.peak_allocated,
            peak_reserved=run.peak_reserved,
            available_bytes=self.available_bytes,
        )

    def may_fit(self, plan: Plan) -> bool:
        """Say whether `plan` is not too large by its weights, gradients and optimizer state alone."""
        return states_bytes(plan) <= self.available_bytes

    def fits(self, fit: Fit) -> bool:
        """Say whether every request of the plan is served within the card's memory."""
        return self._fits[same_memory(fit.plan)].fits and fit.headroom_bytes >= 0


def states_bytes(plan: Plan) -> int:
    """Return the bytes that are alive at the end of the first step whatever the batch; 0 where no table tells."""
    card = MODELS[plan.model]
    positions = (
        card.rotary_base is not None
        or card.context is not None
        or plan.sequence_length == card.sequence_length
    )
    counted = plan.norm == card.norms[0] and positions  # as `card.parameters` is
    return least_bytes(plan) if counted else 0


def same_memory(plan: Plan) -> Plan:
    """Return the shortest plan whose ranks need the same memory as those of `plan`.

    From K = 2 (with FSDP2: 3) and the third step on everything repeats, and a rank of DDP's holds the same beside one
    other and beside many; not where micro-batches differ in shape, nor where ranks hold shares.
    """
    if plan.data == "ragged-text":
        return plan
    alike = replace(
        plan,
        gradient_accumulation_steps=min(plan.gradient_accumulation_steps, micro_batches_to_trace(plan)),
        steps=min(plan.steps, 3),
    )
    return replace(alike, world_size=min(plan.world_size, 2)) if plan.data_parallel == "ddp" else alike
