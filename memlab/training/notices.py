"""What a learner should be told about a run, one sentence each."""

import math
import time
from functools import lru_cache

import torch
from torch import nn

from memlab.device import supports_bf16
from memlab.events import Notice, StepFinished
from memlab.plan import Plan
from memlab.training.norms import batch_norms
from memlab.workload import Workload

PRODUCT = 128
"""Rows and columns of the matrices by which two number formats are compared."""
SLOW = 2.0
"""Times as long as FP32 from which on a learner is told."""


def at_start(plan: Plan, workload: Workload, model: nn.Module, device: torch.device) -> list[Notice]:
    """Return what is to be said before the first step."""
    notices = []
    if plan.gradient_accumulation_steps > 1 and batch_norms(model):
        notices.append(Notice(kind="batch-norm", message=_batch_norm(plan)))
    if plan.gradient_accumulation_steps > 1 and workload.couples_samples:
        notices.append(Notice(kind="coupled-loss", message=_coupled_loss(plan, workload)))
    if plan.precision.startswith("bf16") and not supports_bf16(device):
        notices.append(Notice(kind="bf16-emulated", message=_bf16(plan, device)))
    if plan.global_batch_size > len(workload):
        notices.append(Notice(kind="few-samples", message=_few_samples(plan, len(workload))))
    return notices


def of_this_machine(plan: Plan, device: torch.device) -> list[Notice]:
    """Return what a run, and no prediction, has to say before the first step."""
    if device.type != "cpu" or plan.precision == "fp32":
        return []
    dtype = torch.float16 if plan.precision == "fp16-mixed" else torch.bfloat16
    times = times_as_long(dtype)
    return [Notice(kind="half-precision-slow", message=_slow(plan, times))] if times >= SLOW else []


@lru_cache
def times_as_long(dtype: torch.dtype) -> float:
    """Return how long a matrix product takes on this CPU in `dtype`, as a multiple of FP32's time.

    The better of three tries each, once a process; it draws no random number.
    """
    return _product_seconds(dtype) / _product_seconds(torch.float32)


def _product_seconds(dtype: torch.dtype) -> float:
    matrix = torch.ones(PRODUCT, PRODUCT, dtype=dtype, device="cpu")
    seconds = []
    for _ in range(4):  # the first one makes ready
        began = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def after_step(finished: StepFinished, scale_after: float | None) -> list[Notice]:
    """Return what one step gives to say."""
    if finished.skipped:
        return [
            Notice(
                kind="step-skipped",
                message=f"Optimizer step {finished.step + 1} was skipped, and the schedule with it: a gradient was "
                f"infinite or NaN at loss scale {finished.loss_scale:g}, which is now {scale_after:g}.",
            )
        ]
    return []


def loss_not_finite(finished: StepFinished) -> Notice:
    """Return what is said once when the loss is lost."""
    return Notice(
        kind="loss-not-finite",
        message=f"The loss of optimizer step {finished.step + 1} is {finished.loss}: lower the learning rate, warm up "
        "longer or clip the gradients.",
    )


def is_lost(finished: StepFinished) -> bool:
    """Say whether the loss is NaN or infinite."""
    return not math.isfinite(finished.loss)


def _batch_norm(plan: Plan) -> str:
    k, micro, whole = plan.gradient_accumulation_steps, plan.micro_batch_size, plan.global_batch_size
    moved = {
        "per-micro-batch": f"moves its running statistics {k} times a step",
        "frozen": "moves its running statistics by the first micro-batch of each step",
        "accumulated": "moves its running statistics once a step",
    }[plan.batch_norm_statistics]
    return (
        f"BatchNorm normalises each micro-batch of {micro} by itself and {moved}, so accumulation does not "
        f"compute what a batch of {whole} would; batch_norm_statistics='frozen' or 'accumulated' moves them once a "
        "step, GroupNorm (norm='group') keeps samples apart, and under DDP SyncBatchNorm joins the ranks."
    )


def _coupled_loss(plan: Plan, workload: Workload) -> str:
    return (
        f"The loss of {workload.name} compares samples within a micro-batch, so {plan.gradient_accumulation_steps} "
        f"micro-batches of {plan.micro_batch_size} train another function than a batch of "
        f"{plan.global_batch_size}: raise micro_batch_size and use activation checkpointing instead."
    )


def _bf16(plan: Plan, device: torch.device) -> str:
    return (
        f"{device} has no BF16 of its own and emulates precision={plan.precision!r} slowly: choose 'fp16-mixed', "
        "or a GPU of compute capability 8.0 or higher."
    )


def _few_samples(plan: Plan, samples: int) -> str:
    return (
        f"The data have {samples:,} samples, fewer than a global batch of {plan.global_batch_size:,}, so each "
        f"optimizer step sees {samples:,}, and the figures are those of {samples:,}: make the global batch smaller"
        f"{', choose a shorter sequence_length' if plan.sequence_length else ''} or bring more data."
    )


def _slow(plan: Plan, times: float) -> str:
    name = "FP16" if plan.precision == "fp16-mixed" else "BF16"
    return (
        f"This CPU has no fast {name}: a product of {PRODUCT} x {PRODUCT} matrices, timed before this run, took "
        f"{times:.0f} times as long as in FP32, so precision={plan.precision!r} trains slowly here; its bytes are "
        "right all the same, and a smaller model, batch or sequence_length shows them sooner."
    )
