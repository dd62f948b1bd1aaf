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
from memlab.run import Run
from memlab.trace import CATEGORIES

Progress = Callable[[int, int, Plan], None]
"""Called before each prediction and each count of work: combinations that are decided, of how many, and the plan."""


class Fitting:
    """Predicts on one card, each different need once."""

    def __init__(self, card: Card, *, gradient_as_bucket_view: bool = False) -> None:
        self.card = card
        self.available_bytes = card.memory_bytes - beyond_allocator(card)["cuda_context_low"]
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self._fits: dict[Plan, tuple[Run, int]] = {}

    def fit(self, plan: Plan, before: Callable[[Plan], None] = lambda plan: None) -> Fit:
        """Return what `plan` would need; `before` is called where that takes a new prediction."""
        alike = same_memory(plan)
        if alike not in self._fits:
            before(plan)
            run = predict(alike, card=self.card, progress=False)
            # The trace is large and not needed any more.
            self._fits[alike] = replace(run, trace=None), gradient_bytes(run)
        run, gradients = self._fits[alike]
        has_buckets = plan.world_size > 1 and not self.gradient_as_bucket_view
        return Fit(
            plan=plan,
            card=self.card.name,
            peak=run.peak,
            peak_allocated=run.peak_allocated,
            peak_reserved=run.peak_reserved,
            ddp_bucket_bytes=gradients if has_buckets else 0,
            available_bytes=self.available_bytes,
        )

    def may_fit(self, plan: Plan) -> bool:
        """Say whether `plan` is not too large by its weights, gradients and optimizer state alone."""
        return states_bytes(plan) <= self.available_bytes

    def fits(self, fit: Fit) -> bool:
        """Say whether every request of the plan is served within the card's memory."""
        return self._fits[same_memory(fit.plan)][0].fits and fit.headroom_bytes >= 0


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
    """Return the shortest plan that one rank of `plan` needs the same memory for.

    From K = 2 and the second step on, everything repeats; not where micro-batches differ in shape.
    """
    if plan.data == "ragged-text":
        return plan.of_one_rank
    return replace(
        plan.of_one_rank,
        gradient_accumulation_steps=min(plan.gradient_accumulation_steps, 2),
        steps=min(plan.steps, 2),
    )


def gradient_bytes(run: Run) -> int:
    """Return the most bytes of gradients that are alive at once: all of them, at the end of backward."""
    assert run.trace is not None
    return int(run.trace.by_category[:, CATEGORIES.index("gradients")].max())
