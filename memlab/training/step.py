"""One optimizer step. Everything that a plan can choose arrives as an object."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from memlab.training.checks import checked_loss_sum
from memlab.training.clipping import Clip
from memlab.training.metering import StepMeter
from memlab.training.norms import NormStatistics
from memlab.training.precision import FullPrecision
from memlab.training.schedule import LearningRateSchedule
from memlab.training.sync import SingleRank
from memlab.training.window import Window
from memlab.training.zeroing import GradientReset
from memlab.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a step works with, each chosen once from the plan."""

    workload: Workload
    model: nn.Module
    optimizer: torch.optim.Optimizer
    precision: FullPrecision
    sync: SingleRank
    norms: NormStatistics
    zero_grad: GradientReset
    clip: Clip
    schedule: LearningRateSchedule
    meter: StepMeter


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one step found, still on the device: reading it waits for the device."""

    loss: Tensor
    """Mean over the items of the window; shape ()."""
    gradient_norm: Tensor | None
    updated: bool


def optimizer_step(parts: Parts, window: Window) -> Outcome:
    """Train on one window: forward and backward for each micro-batch, then one update of the weights."""
    model, precision, meter = parts.model, parts.precision, parts.meter
    last = len(window.micro_batches) - 1
    window_loss = 0.0

    parts.zero_grad.before_forward()
    # Each loss is divided by the items of the whole window: micro-batches may hold unequal numbers.
    for micro_step, (host_batch, items) in enumerate(
        zip(window.micro_batches, window.divisors, strict=False)
    ):
        # DDP reads its sync flag in forward, so forward must be inside too.
        with parts.sync.context(model, is_last=micro_step == last), parts.norms.micro_step(micro_step):
            meter.mark("forward", micro_step)
            batch = precision.to_device(host_batch)
            with precision.autocast():
                loss = checked_loss_sum(parts.workload, model, batch) / items
            meter.mark("backward", micro_step)
            parts.zero_grad.before_backward(micro_step)
            precision.scale(loss).backward()  # adds to the gradients of the micro-steps before
        window_loss += loss.detach().float()  # a number on the device: .item() would wait for it
        del loss, batch  # else graph and inputs outlive the next forward

    meter.mark("optimizer")
    parts.norms.after_window()
    precision.unscale(parts.optimizer)  # once a window, and before clipping
    gradient_norm = parts.clip(precision.gradient_holders)
    updated = precision.step(parts.optimizer)
    if updated:  # a step that the scaler skipped must not move the schedule
        parts.schedule.step()
    parts.zero_grad.after_step()
    return Outcome(loss=window_loss, gradient_norm=gradient_norm, updated=updated)
