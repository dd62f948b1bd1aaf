"""Precisions as objects: where numbers are FP32, where not, and how the optimizer is called."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import assert_never

from memlab.data import Batch
from memlab.plan import Plan, PlanError


class FullPrecision:
    """FP32 all the way; the other precisions change what they must."""

    loss_scale: float | None = None
    """By which the next loss is multiplied before backward; None without a scaler."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.gradient_holders: list[nn.Parameter] = []
        """Parameters whose `.grad` is the gradient that the update uses."""

    def prepare(self, model: nn.Module) -> list[nn.Parameter]:
        """Bring the weights into this precision; return the parameters that the optimizer updates."""
        self.gradient_holders = list(trainable(model))
        return self.gradient_holders

    def to_device(self, batch: Batch) -> Batch:
        """Copy a micro-batch from the host: on the CPU too, so that a meter sees one at a time, as on a GPU."""
        return tuple(tensor.to(self.device, non_blocking=True, copy=True) for tensor in batch)

    def autocast(self) -> AbstractContextManager[object]:
        """Hold around forward and loss, never around backward."""
        return nullcontext()

    def scale(self, loss: Tensor) -> Tensor:
        """Return what backward starts from."""
        return loss

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Turn the gradients of the scaled loss into those of the loss."""

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Update the weights; return whether that happened."""
        optimizer.step()
        return True

    def zero_grad(self, optimizer: torch.optim.Optimizer, set_to_none: bool) -> None:
        """Drop the gradients, or fill them with zeros."""
        optimizer.zero_grad(set_to_none=set_to_none)


class Autocast(FullPrecision):
    """FP32 weights; forward casts them, and what it computes, where `dtype` is safe."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(device)
        self.dtype = dtype

    def autocast(self) -> AbstractContextManager[object]:
        """Return torch's autocast; its copies of the weights live until it ends or backward is through."""
        return torch.autocast(self.device.type, self.dtype)


class ScaledAutocast(Autocast):
    """FP16 autocast with a scaler, which keeps small gradients above FP16's 2^-24."""

    def __init__(
        self,
        device: torch.device,
        initial_scale: float,
        growth_interval: int,
        scaler: type[torch.amp.GradScaler] = torch.amp.GradScaler,
    ) -> None:
        super().__init__(device, torch.float16)
        self._scaler = scaler(device.type, init_scale=initial_scale, growth_interval=growth_interval)
        self.loss_scale = initial_scale

    def prepare(self, model: nn.Module) -> list[nn.Parameter]:
        """Return the FP32 weights; raise PlanError where one is FP16, whose gradient cannot be unscaled."""
        for name, parameter in model.named_parameters():
            if parameter.dtype == torch.float16:
                raise PlanError(
                    f"{name} is FP16, but precision='fp16-mixed' keeps FP32 weights under its scaler, since FP16 "
                    "gradients cannot be unscaled without loss: build the model in FP32 (model.float())."
                )
        return super().prepare(model)

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss times the scale."""
        return self._scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale; torch raises on a second call before the step."""
        self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Update unless a gradient is infinite or NaN; then halve the scale instead."""
        before = self.loss_scale
        self._scaler.step(optimizer)
        self._scaler.update()
        self.loss_scale = self._scaler.get_scale()
        # A scale that has fallen to 0 can fall no further, and skips for ever.
        return self.loss_scale >= before and self.loss_scale > 0


class UnreadScaler(torch.amp.GradScaler):
    """A scaler for tensors without data: makes what the other makes, and takes each gradient for finite."""

    def _maybe_opt_step(
        self, optimizer: torch.optim.Optimizer, optimizer_state: Any, *args: Any, **kwargs: Any
    ) -> float | None:
        return optimizer.step(*args, **kwargs)  # the other reads first whether one was infinite

    def get_scale(self) -> float:
        """Return the scale at the start."""
        return self._init_scale


def trainable(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters that learn, each once."""
    return (parameter for parameter in model.parameters() if parameter.requires_grad)


def precision_for(plan: Plan, device: torch.device, *, has_data: bool = True) -> FullPrecision:
    """Return the plan's precision on `device`, whose tensors may have no data."""
    from memlab.training.low_precision import BFloat16Weights  # it builds on this module

    match plan.precision:
        case "fp32":
            return FullPrecision(device)
        case "bf16-mixed":
            return Autocast(device, torch.bfloat16)
        case "fp16-mixed":
            scaler = torch.amp.GradScaler if has_data else UnreadScaler
            return ScaledAutocast(device, plan.initial_loss_scale, plan.loss_scale_growth_interval, scaler)
        case "bf16-true":
            return BFloat16Weights(device, plan)
        case never:
            assert_never(never)
