"""Several ranks that hold all weights, as one rank without data sees them: the buckets of DDP, the shares of ZeRO-1.

Nobody is there to exchange anything with: what DDP's reducer and ZeroRedundancyOptimizer keep in memory is made
when they would make it (torch/csrc/distributed/c10d/reducer.cpp, torch/distributed/optim).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from memlab.plan import Plan
from memlab.training.data_parallel import exchanges
from memlab.training.metering import StepMeter
from memlab.training.precision import trainable
from memlab.training.sync import SingleRank


class Buckets:
    """The memory through which DDP's reducer exchanges gradients: their bytes once more, without padding.

    One storage for each type of weight. The reducer has so at first; then, unless it looks for unused weights,
    it frees that in the forward after the first exchange and cuts the same bytes into several buckets, whose
    borders are not followed here.
    """

    def __init__(self, model: nn.Module, plan: Plan, meter: StepMeter) -> None:
        self._weights = [*trainable(model)][::-1]
        self._meter = meter
        self._views: dict[int, Tensor] | None = {} if plan.gradient_as_bucket_view else None
        self._may_lay_out_anew = not plan.find_unused_parameters
        self._exchanged = False
        self.exchanging = False
        """Whether the backward that comes sends its gradients."""
        self._storages: list[Tensor] = []
        self._lay_out()
        model.register_forward_pre_hook(self._before_forward)
        if plan.find_unused_parameters:
            model.register_forward_hook(_passed_on)
            self._used = torch.empty(len(self._weights), dtype=torch.int32, device=self._weights[0].device)
            meter.exchange(self._used)  # which weights this rank used, agreed on in each exchange
        # Held, for autograd would make another node: the reducer holds them too.
        self._nodes = [torch.autograd.graph.get_gradient_edge(weight).node for weight in self._weights]
        for weight, node in zip(self._weights, self._nodes, strict=True):
            node.register_hook(self._hook(weight))

    def _lay_out(self) -> None:
        # First: the reducer frees before it allocates; what gradients view lives until they are moved.
        self._storages = []
        if self._views is not None:
            self._views = {}
        for dtype in dict.fromkeys(weight.dtype for weight in self._weights):
            alike = [weight for weight in self._weights if weight.dtype == dtype]
            storage = torch.empty(
                sum(weight.numel() for weight in alike), dtype=dtype, device=alike[0].device
            )
            self._meter.exchange(storage)
            self._storages.append(storage)
            if self._views is not None:
                self._cut(storage, alike)

    def _cut(self, storage: Tensor, weights: Sequence[nn.Parameter]) -> None:
        assert self._views is not None
        offset = 0
        for weight in weights:
            view = storage.as_strided(weight.shape, weight.stride(), offset)
            if weight.grad is not None:  # laid out anew while gradients are kept
                weight.grad = view
            self._views[id(weight)] = view
            offset += weight.numel()

    def _before_forward(self, module: nn.Module, inputs: object) -> None:
        if self._exchanged and self._may_lay_out_anew and torch.is_grad_enabled():
            self._may_lay_out_anew = False
            self._lay_out()

    def _hook(self, weight: nn.Parameter) -> Any:
        def ready(*gradients: object) -> None:
            if self.exchanging:
                self._exchanged = True
                if self._views is not None:
                    weight.grad = self._views[id(weight)]  # frees the gradient that autograd made

        return ready


def _passed_on(module: nn.Module, inputs: object, output: Any) -> Any:
    """Copy what forward returns, as DDP does to hear of the backward (_DDPSink)."""
    return output.clone() if isinstance(output, Tensor) else output


class DatalessReplicas(SingleRank):
    """DDP: each rank holds all weights, and buckets."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @override
    def wrap(self, model: nn.Module, meter: StepMeter) -> nn.Module:
        self._buckets = Buckets(model, self._plan, meter)
        return model

    @override
    @contextmanager
    def context(self, model: nn.Module, *, is_last: bool) -> Iterator[None]:
        self._buckets.exchanging = exchanges(self._plan.gradient_sync, is_last=is_last)
        yield


class DatalessSharedState(DatalessReplicas):
    """DDP and ZeRO-1: the rank whose share of the optimizer's state is the largest."""

    @override
    def optimizer(self, whole: torch.optim.Optimizer) -> torch.optim.Optimizer:
        by_size = [sorted(group["params"], key=Tensor.numel, reverse=True) for group in whole.param_groups]
        weights = [weight for group in by_size for weight in group]
        ranks = shares([weight.numel() for weight in weights], self._plan.world_size)
        held: dict[int, dict[int, int]] = {rank: {} for rank in ranks}
        for weight, rank in zip(weights, ranks, strict=True):
            held[rank][id(weight)] = weight.numel()
        # Of equals the one with more weights: each has a counter of its steps.
        largest = max(held.values(), key=lambda sizes: (sum(sizes.values()), len(sizes)))
        _update_only(whole, [[weight for weight in group if id(weight) in largest] for group in by_size])
        return whole


def shares(sizes: Sequence[int], world_size: int) -> list[int]:
    """Return which rank updates each weight, as ZeroRedundancyOptimizer says: the one that has least so far.

    It takes the weights of each group by size, the largest first.

    >>> shares([6, 3, 2, 1], 2)
    [0, 1, 1, 1]
    """
    taken = [0] * world_size
    ranks = []
    for size in sizes:
        rank = taken.index(min(taken))
        ranks.append(rank)
        taken[rank] += size
    return ranks


def _update_only(optimizer: torch.optim.Optimizer, groups: Sequence[Sequence[nn.Parameter]]) -> None:
    """Show the optimizer's step some of its weights alone: others get no state."""
    whole = [group["params"] for group in optimizer.param_groups]

    def show(weights: Sequence[Sequence[nn.Parameter]]) -> None:
        for group, of_group in zip(optimizer.param_groups, weights, strict=True):
            group["params"] = of_group

    optimizer.register_step_pre_hook(lambda *step: show(groups))
    optimizer.register_step_post_hook(lambda *step: show(whole))
