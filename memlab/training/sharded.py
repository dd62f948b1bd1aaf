"""Several ranks that divide what each would hold: the optimizer's state (ZeRO-1), or the weights too (FSDP2)."""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes
from typing_extensions import override

from memlab.plan import Plan
from memlab.training.data_parallel import Replicas, SeveralRanks, exchanges
from memlab.training.exchange import Exchange
from memlab.training.metering import StepMeter
from memlab.training.shared_exchange import AllGathers, ReduceScatters

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


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

    def __init__(self, plan: Plan, device: torch.device) -> None:
        super().__init__(plan, device)
        self._until_closed = ExitStack()

    @override
    def close(self) -> None:
        self._until_closed.close()
        super().close()

    @override
    def divide(self, model: nn.Module, blocks: list[nn.Module]) -> None:
        from torch.distributed.fsdp import fully_shard  # half a second

        self._until_closed.enter_context(_trials_unseen())
        mesh = self._mesh()
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)

    @override
    def wrap(self, model: nn.Module, meter: StepMeter) -> nn.Module:
        from torch.distributed.fsdp import FSDPModule

        self._exchange = Exchange(meter, self.rank, self.world_size)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_custom_all_gather(AllGathers(self._exchange))
                module.set_custom_reduce_scatter(ReduceScatters(self._exchange))
        return model

    def _mesh(self) -> "DeviceMesh":
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(self._device.type, (self.world_size,))

    @override
    @contextmanager
    def context(self, model: nn.Module, *, is_last: bool) -> Iterator[None]:
        exchanging = exchanges(self._plan.gradient_sync, is_last=is_last)
        self._exchange.begin_micro_step(exchanging=False)
        model.set_requires_gradient_sync(exchanging)  # without: whole gradients of all weights are kept
        yield


@contextmanager
def _trials_unseen() -> Iterator[None]:
    """Keep from a meter what DTensor makes to learn an operator's shapes: whole tensors, which hold no data."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    trial = ShardingPropagator._propagate_tensor_meta_non_cached  # private, and the one place of all trials

    def unseen(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return trial(*args, **kwargs)

    ShardingPropagator._propagate_tensor_meta_non_cached = unseen
    try:
        yield
    finally:
        ShardingPropagator._propagate_tensor_meta_non_cached = trial
