"""BF16 weights, and the FP32 companions that people keep beside them.

Bytes per parameter with AdamW, as weights + gradients + moments + master copy:

| choice | bytes |
| --- | --- |
| nothing | 2 + 2 + 4 = 8 |
| optimizer_state_precision="fp32" | 2 + 2 + 8 = 12 |
| master_weights | 2 + 2 + 8 + 4 = 16 |
| master_weights, gradient_precision="fp32" | 2 + 4 + 8 + 4 = 18 |
| master_weights, gradient_precision="bf16+fp32" | 2 + (2 + 4) + 8 + 4 = 20 |

Where weight, gradient and state differ in precision, the optimizer works on an *owner* of each weight:
its FP32 master copy, or a parameter that shares the weight's memory and becomes a temporary FP32 copy
while that one weight is updated. Owners stand in `optimizer.param_groups`.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from memlab.data import Batch
from memlab.plan import Plan
from memlab.training.precision import FullPrecision, trainable


@dataclass(frozen=True)
class _Pair:
    weight: nn.Parameter
    owner: nn.Parameter


class BFloat16Weights(FullPrecision):
    """Weights, inputs and activations in BF16; gradients, state and master copy as the plan says."""

    def __init__(self, device: torch.device, plan: Plan) -> None:
        super().__init__(device)
        self._master = plan.master_weights
        self._gradients = plan.gradient_precision or "bf16"
        wide_state = plan.master_weights or plan.optimizer_state_precision == "fp32"
        self._update_dtype = torch.float32 if wide_state else torch.bfloat16
        self._pairs: list[_Pair] = []

    def prepare(self, model: nn.Module) -> list[nn.Parameter]:
        """Cast the model to BF16 in place; return the owners that the optimizer updates."""
        originals = [weight.detach() for weight in trainable(model)]
        weights = list(trainable(model.to(torch.bfloat16)))
        self.gradient_holders = weights
        if not self._master and self._gradients == "bf16" and self._update_dtype == torch.bfloat16:
            return weights
        owned = (
            [original.float() for original in originals] if self._master else [w.detach() for w in weights]
        )
        owners = [nn.Parameter(data) for data in owned]
        self._pairs = [_Pair(weight, owner) for weight, owner in zip(weights, owners, strict=True)]
        self._arrange_gradients()
        return owners

    def _arrange_gradients(self) -> None:
        for pair in self._pairs:
            match self._gradients:
                case "fp32":
                    pair.weight.grad_dtype = torch.float32  # autograd casts each gradient, then adds
                case "bf16+fp32":
                    pair.owner.grad_dtype = None  # its gradient is FP32, whatever it is itself
                    # The hook sees each gradient before autograd adds it to the BF16 sum.
                    pair.weight.register_hook(partial(_add_in_fp32, pair.owner))
        if self._gradients == "bf16+fp32":
            self.gradient_holders = [pair.owner for pair in self._pairs]

    def to_device(self, batch: Batch) -> Batch:
        """Copy a micro-batch from the host, its floating-point tensors as BF16."""
        return tuple(
            tensor.to(
                self.device,
                torch.bfloat16 if tensor.is_floating_point() else tensor.dtype,
                non_blocking=True,
                copy=True,
            )
            for tensor in batch
        )

    @torch.no_grad()
    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Update all weights; where that needs temporary copies, one weight at a time."""
        if not self._pairs:
            return super().step(optimizer)
        gradients = [holder.grad for holder in self.gradient_holders]
        for pair in self._pairs:
            pair.owner.grad = None  # optimizers pass over a parameter without one
        work = [(pair, grad) for pair, grad in zip(self._pairs, gradients, strict=True) if grad is not None]
        copies_nothing = self._master and self._gradients != "bf16"
        for together in [work] if copies_nothing else [[item] for item in work]:
            self._update(optimizer, together)
        if self._gradients == "bf16+fp32":
            for pair, grad in zip(self._pairs, gradients, strict=True):
                pair.owner.grad = grad
        return True

    def _update(self, optimizer: torch.optim.Optimizer, work: list[tuple[_Pair, Tensor]]) -> None:
        for pair, gradient in work:
            if not self._master:
                pair.owner.data = pair.weight.detach().to(self._update_dtype)
            pair.owner.grad = gradient.to(self._update_dtype)
        optimizer.step()
        for pair, _ in work:
            pair.owner.grad = None
            pair.weight.copy_(pair.owner)
            if not self._master:
                pair.owner.data = pair.weight.detach()

    def zero_grad(self, optimizer: torch.optim.Optimizer, set_to_none: bool) -> None:
        """Drop the gradients of weights and owners, or fill them with zeros."""
        optimizer.zero_grad(set_to_none=set_to_none)
        for pair in self._pairs:
            _drop(pair.weight, set_to_none)


def _add_in_fp32(owner: nn.Parameter, gradient: Tensor) -> None:
    if owner.grad is None:
        owner.grad = gradient.float()
    else:
        owner.grad += gradient


def _drop(weight: nn.Parameter, set_to_none: bool) -> None:
    if set_to_none:
        weight.grad = None
    elif weight.grad is not None:
        weight.grad.zero_()
