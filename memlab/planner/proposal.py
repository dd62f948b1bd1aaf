"""What the planner answers: a plan, the memory that it would need, and how it ranks."""

from dataclasses import dataclass
from typing import Any

from memlab.plan import Plan
from memlab.trace import Breakdown


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A plan on a card: what one rank would need of it, predicted."""

    plan: Plan
    card: str
    peak: Breakdown
    """The instant of the largest total of live tensors."""
    peak_allocated: int
    peak_reserved: int
    """What the allocator would take from the card."""
    available_bytes: int
    """The card's memory less the CUDA context at its smallest."""

    @property
    def headroom_bytes(self) -> int:
        """What stays free on the card; negative where the plan does not fit."""
        return self.available_bytes - self.peak_reserved

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON; the keys are the attributes' names."""
        return {
            **vars(self),
            "plan": self.plan.to_dict(),
            "peak": self.peak.to_dict(),
            "headroom_bytes": self.headroom_bytes,
        }


@dataclass(frozen=True, kw_only=True)
class Proposal(Fit):
    """A plan that fits, with its place among the others."""

    relative_speed: float
    """Samples per second over those of the fastest proposal, by a roofline that ranks and times nothing."""
    utilisation: float
    """Share of the roofline's time that the card's peak rate would need for the arithmetic alone."""
    flops_per_sample: float
    """Floating-point operations of matrix products, convolutions and attention, recomputation included."""
    largest: bool
    """Whether no larger micro-batch of this precision, checkpointing and optimizer fits."""


class NothingFits(MemoryError):
    """No combination fits: says in one sentence what comes nearest and what to change."""

    def __init__(self, sentence: str, nearest: Fit) -> None:
        super().__init__(sentence)
        self.nearest = nearest
        """The combination that needs least."""
