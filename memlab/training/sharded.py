"""Several ranks that divide what each would hold: the optimizer's state (ZeRO-1), or the weights too (FSDP2)."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from typing_extensions import override

from memlab.training.data_parallel import Replicas, SeveralRanks, exchanges


class SharedState(Replicas):
    """DDP, and torch's ZeroRedundancyOptimizer: each rank updates its share of the weights and sends them round."""

    @override
    def optimizer(self, whole: torch.optim.Optimizer) -> torch.optim.Optimizer:
        from torch.distributed.optim import (
            ZeroRedundancyOptimizer,  # compiles code as it is imported: seconds
        )

        kind = type(whole)
        taken = inspect.signature(kind.__init__).parameters
        groups = [
            {name: value for name, value in group.items() if name in ("params", *taken)}
            for group in whole.param_groups
        ]
        return ZeroRedundancyOptimizer(
            groups, kind, **{n: v for n, v in whole.defaults.items() if n in taken}
        )


class SharedWeights(SeveralRanks):
    """FSDP2: each rank holds a share of weights, gradients and state, and gathers a block's weights to use them."""

    @override
    def divide(self, model: nn.Module, blocks: list[nn.Module]) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard  # half a second

        mesh = init_device_mesh(self._device.type, (self.world_size,))
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)

    @override
    @contextmanager
    def context(self, model: nn.Module, *, is_last: bool) -> Iterator[None]:
        exchanging = exchanges(self._plan.gradient_sync, is_last=is_last)
        self._exchange.begin_micro_step(exchanging=False)
        model.set_requires_gradient_sync(exchanging)  # without: whole gradients of all weights are kept
        yield
