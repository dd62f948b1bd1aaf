"""How FSDP2 gathers weights and scatters gradients: as it does by itself, counted, and nothing held any longer."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from memlab.training.backend_thread import let_go
from memlab.training.exchange import Exchange, ended


class _Through:
    """A collective of FSDP2's, counted by an Exchange; `allocate` gives it the flat buffers."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return an empty tensor."""
        return torch.empty(*size, dtype=dtype, device=device)


class AllGathers(_Through):
    """Brings the shares of a block's weights together; for `FSDPModule.set_custom_all_gather`."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        """Fill `output_tensor`; `input_tensor` is this rank's part of it."""
        one = self._exchange.begins("all-gather", output_tensor)
        with let_go(output_tensor):
            work = _all_gather(output_tensor, input_tensor, group=group, async_op=async_op)
            ended(one)
        return work


class ReduceScatters(_Through):
    """Gives each rank its share of all ranks' gradients; for `FSDPModule.set_custom_reduce_scatter`."""

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Fill `output_tensor`, this rank's share, from every rank's `input_tensor`."""
        one = self._exchange.begins("reduce-scatter", input_tensor)
        with let_go(output_tensor, input_tensor):
            work = _reduce_scatter(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
            ended(one)
        return work


# torch 2.13 has other names for them, and warns of those that 2.11 has.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
