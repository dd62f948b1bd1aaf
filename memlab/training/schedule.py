"""Learning-rate schedules, counted in updates that really happened."""

import math
from typing import Protocol

import torch
from torch.optim.lr_scheduler import LambdaLR
from typing_extensions import assert_never

from memlab.plan import Plan


class LearningRateSchedule(Protocol):
    """Moves the learning rate after each update."""

    def step(self) -> None:
        """Note that one update happened."""
        ...


class Constant:
    """The learning rate stays as the optimizer was built."""

    def step(self) -> None:
        """Change nothing."""


def schedule_for(plan: Plan, optimizer: torch.optim.Optimizer) -> LearningRateSchedule:
    """Return the plan's schedule, which sets the learning rate of the first update at once."""
    if plan.schedule == "constant" and not plan.warmup_steps:
        return Constant()
    return LambdaLR(optimizer, lambda updates: learning_rate_factor(plan, updates + 1))


def learning_rate_factor(plan: Plan, update: int) -> float:
    """Return the share of the peak learning rate that update number `update` (from 1) uses.

    With w warm-up steps, n steps and s = max(w, 1), the update of the peak: update / w up to w; then
    1 - t (linear) or (1 + cos(pi t)) / 2 (cosine), with t = (update - s) / (n + 1 - s), at most 1.
    So the peak is at update s, and 0 would be reached by update n + 1.

    >>> warmed = Plan(steps=4, warmup_steps=2, schedule="linear")
    >>> [round(learning_rate_factor(warmed, update), 3) for update in range(1, 6)]
    [0.5, 1.0, 0.667, 0.333, 0.0]
    """
    if update <= plan.warmup_steps:
        return update / plan.warmup_steps
    peak = max(plan.warmup_steps, 1)
    t = min((update - peak) / max(plan.steps + 1 - peak, 1), 1.0)
    match plan.schedule:
        case "constant":
            return 1.0
        case "linear":
            return 1.0 - t
        case "cosine":
            return (1.0 + math.cos(math.pi * t)) / 2
        case never:
            assert_never(never)
