"""Which micro-batch, K, precision and checkpointing fit a card, and which of them are fastest by rank."""

from memlab.planner.proposal import Fit, NothingFits, Proposal
from memlab.planner.search import feasible_plans

__all__ = ["Fit", "NothingFits", "Proposal", "feasible_plans"]
