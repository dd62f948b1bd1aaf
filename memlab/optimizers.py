"""Optimizers by name, with torch's own switches for how they update."""

from collections.abc import Iterable

import torch
from torch import nn
from typing_extensions import assert_never

from memlab.plan import Plan


def build(parameters: Iterable[nn.Parameter], plan: Plan) -> torch.optim.Optimizer:
    """Return the optimizer that `plan` names over `parameters`, at the plan's peak learning rate.

    `foreach` and `fused` go to torch as they are; None leaves the choice to torch.
    """
    switches = {"lr": plan.learning_rate, "foreach": plan.foreach, "fused": plan.fused}
    match plan.optimizer:
        case "sgd":
            return torch.optim.SGD(parameters, momentum=plan.momentum, **switches)
        case "adamw":
            return torch.optim.AdamW(parameters, **switches)
        case never:
            assert_never(never)
