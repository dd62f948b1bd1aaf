"""How ranks agree: on the number of items in a window, on its gradient and its loss. One rank: on nothing."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from typing_extensions import assert_never

from memlab.events import StepCommunication
from memlab.plan import Plan
from memlab.training.metering import StepMeter
from memlab.training.window import Window


class SingleRank:
    """One rank has nobody to agree with."""

    rank = 0

    def divide(self, model: nn.Module, blocks: list[nn.Module]) -> None:
        """Leave this rank's share of the weights in `model`, before the optimizer is built: all of them."""

    def optimizer(self, whole: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Return the optimizer of this rank's share of the weights: all of them."""
        return whole

    def wrap(self, model: nn.Module, meter: StepMeter) -> nn.Module:
        """Return what forward goes through."""
        return model

    def bare(self, model: nn.Module) -> nn.Module:
        """Return the model within what `wrap` returned."""
        return model

    def agreed(self, window: Window) -> Window:
        """Return `window` with the items of all ranks, and as many micro-steps as they have."""
        return window

    def context(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[object]:
        """Hold around forward and backward of one micro-step; gradients are exchanged in the last alone."""
        return nullcontext()

    def mean(self, loss: Tensor) -> float:
        """Return the loss of the window over all ranks, read from the device."""
        return loss.item()

    def communication(self, step: int) -> list[StepCommunication]:
        """Return what was exchanged in the step that ended."""
        return []

    def explain(self, error: BaseException) -> None:
        """Raise a complaint of torch's about ranks as one with a way out; let other errors pass."""

    def close(self) -> None:
        """Leave the other ranks."""


def sync_for(plan: Plan, device: torch.device) -> SingleRank:
    """Return how the ranks of `plan` agree; joins them. Raises PlanError where this process is alone."""
    if plan.world_size == 1:
        return SingleRank()
    from memlab.training import data_parallel, sharded  # they build on this module

    match plan.data_parallel:
        case "ddp":
            return data_parallel.Replicas(plan, device)
        case "zero1":
            return sharded.SharedState(plan, device)
        case "fsdp2":
            return sharded.SharedWeights(plan, device)
        case never:
            assert_never(never)
