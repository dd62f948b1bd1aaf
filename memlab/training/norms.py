"""BatchNorm's running statistics under accumulation: how often they move, and by what.

In every policy each micro-batch is normalised by its own statistics, as torch does.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from typing_extensions import assert_never

from memlab.plan import BatchNormStatistics, Plan, PlanError

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm


def batch_norms(model: nn.Module) -> list[BatchNorm]:
    """Return the BatchNorm modules within `model`."""
    return [module for module in model.modules() if isinstance(module, BATCH_NORMS)]


def moving(model: nn.Module) -> list[BatchNorm]:
    """Return those whose running statistics move in training."""
    return [norm for norm in batch_norms(model) if norm.track_running_stats and norm.running_mean is not None]


class NormStatistics:
    """As torch does it: the running statistics move with every micro-batch."""

    def micro_step(self, micro_step: int) -> AbstractContextManager[object]:
        """Hold around forward and backward of one micro-batch."""
        return nullcontext()

    def after_window(self) -> None:
        """Pass the last backward of a window."""

    def close(self) -> None:
        """Leave the model without hooks of ours."""


class FrozenStatistics(NormStatistics):
    """The first micro-batch of a window moves the running statistics; the others leave them."""

    def __init__(self, model: nn.Module) -> None:
        self._norms = moving(model)

    def micro_step(self, micro_step: int) -> AbstractContextManager[object]:
        """Keep the running statistics still in all micro-steps but the first."""
        return nullcontext() if micro_step == 0 else still(self._norms)


class AccumulatedStatistics(NormStatistics):
    """The running statistics move once a window, by the mean and variance of all its samples."""

    def __init__(self, model: nn.Module) -> None:
        self._norms = moving(model)
        self._moments = [Moments() for _ in self._norms]
        self._hooks = [
            norm.register_forward_pre_hook(moments.add)
            for norm, moments in zip(self._norms, self._moments, strict=True)
        ]

    def micro_step(self, micro_step: int) -> AbstractContextManager[object]:
        """Keep the running statistics still; the hooks gather moments meanwhile."""
        if micro_step == 0:  # a window that broke off may have left some
            for moments in self._moments:
                moments.clear()
        return still(self._norms)

    def after_window(self) -> None:
        """Move the running statistics."""
        for norm, moments in zip(self._norms, self._moments, strict=True):
            moments.move(norm)

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()


@contextmanager
def still(norms: list[BatchNorm]) -> Iterator[None]:
    """Keep the running statistics of `norms` as they are, while batches are normalised by their own."""
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


@dataclass
class Moments:
    """Sums over all samples of a window, per channel, in FP64."""

    count: int = 0
    sums: Tensor | None = field(default=None)
    """Sum of the values and sum of their squares; shape (2, channels)."""

    def clear(self) -> None:
        """Forget all samples."""
        self.count, self.sums = 0, None

    @torch.no_grad()
    def add(self, norm: BatchNorm, inputs: tuple[Tensor, ...]) -> None:
        """Take in one micro-batch: a forward pre-hook."""
        if not norm.training or torch._C._current_graph_task_id() != -1:
            return  # within backward it is a recomputation of a batch that was counted
        values = inputs[0].detach().transpose(0, 1).flatten(1).float()
        count = values.shape[1]
        variance, mean = (moment.double() for moment in torch.var_mean(values, dim=1, correction=0))
        sums = torch.stack([count * mean, count * (variance + mean * mean)])
        self.count += count
        self.sums = sums if self.sums is None else self.sums + sums

    @torch.no_grad()
    def move(self, norm: BatchNorm) -> None:
        """Move the running statistics of `norm` once, and forget the samples.

        The variance over all is the mean of the variances plus the variance of the means; torch
        stores it unbiased, times n / (n - 1).
        """
        if self.sums is None:
            return
        mean, square = self.sums / self.count
        variance = (square - mean * mean).clamp(min=0) * (self.count / max(self.count - 1, 1))
        norm.num_batches_tracked += 1
        weight = 1.0 / int(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), weight)
        norm.running_var.lerp_(variance.to(norm.running_var.dtype), weight)
        self.clear()


def norms_for(statistics: BatchNormStatistics, model: nn.Module) -> NormStatistics:
    """Return how the running statistics of `model` move."""
    match statistics:
        case "per-micro-batch":
            return NormStatistics()
        case "frozen":
            return FrozenStatistics(model)
        case "accumulated":
            return AccumulatedStatistics(model)
        case never:
            assert_never(never)


def explain_one_value(error: BaseException, plan: Plan) -> None:
    """Raise torch's complaint about BatchNorm over a single value as the way out; let other errors pass."""
    if isinstance(error, ValueError) and str(error).startswith("Expected more than 1 value per channel"):
        raise PlanError(
            f"micro_batch_size={plan.micro_batch_size} left BatchNorm a micro-batch of one sample (the tail of an "
            "epoch may be one), which has no variance to normalise by: choose a micro-batch size that leaves "
            "at least two, or another norm."
        ) from error
