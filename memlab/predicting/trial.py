"""Run the training loop of a plan on tensors without data, metered."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import torch

from memlab.memory.peaks import Peaks
from memlab.plan import Plan
from memlab.predicting.attended import attended
from memlab.predicting.by_blocks import recorded, recorded_by_blocks
from memlab.predicting.card_device import card_device
from memlab.predicting.dataless import DatalessMode, without_data
from memlab.predicting.refusals import refusals_explained
from memlab.predicting.rules import cpu, cuda
from memlab.predicting.rules.autocast import weight_cache
from memlab.predicting.rules.composites import AMPERE, predicting_for
from memlab.trace import ARRAYS, PHASES, Breakdown, Trace
from memlab.training.window import Window
from memlab.workload import Workload

_OPTIMIZER = PHASES.index("optimizer")


@dataclass(frozen=True, eq=False)
class Trial:
    """What the steps of a plan allocate."""

    trace: Trace
    peak: Breakdown
    peaks_by_phase: Mapping[str, Breakdown]
    step_peaks: tuple[int, ...]
    notices: tuple[str, ...]
    by_blocks: bool
    """Whether a few of the model's blocks, which are alike, told of all."""


def trial(
    plan: Plan,
    workload: Workload,
    steps: Sequence[Window],
    capability: tuple[int, int] | None = None,
    *,
    in_full: bool = False,
    progress: bool = False,
) -> Trial:
    """Train `plan` on `steps` without data: nothing is computed, and no parameter gets a value.

    By the rules of a card with this compute capability; None: by the CPU's. `in_full` traces all
    blocks of a model and both steps, also where some of that tells of the rest: the same result, later.
    `progress` as `attended` has it.
    """
    device = torch.device("cpu") if capability is None else card_device()
    mode = DatalessMode(device, cpu.RULES if capability is None else cuda.RULES)
    with ExitStack() as stack:
        stack.enter_context(refusals_explained())
        stack.enter_context(predicting_for(capability or AMPERE))
        stack.enter_context(weight_cache())
        stack.enter_context(without_data(mode))
        stack.enter_context(attended(mode, "predicting", progress=progress))
        # ZeRO-1 gives a rank weights of some blocks and not of others.
        if in_full or plan.data_parallel == "zero1":
            found = recorded(plan, workload, steps, mode, in_full=in_full)
        else:
            found = recorded_by_blocks(plan, workload, steps, mode)
    peaks = Peaks("all")
    for part in found.parts:
        peaks.add(_updates_after_all(part, steps))
    return Trial(
        peaks.trace(), peaks.peak, dict(peaks.by_phase), tuple(peaks.of_steps), found.notices, found.by_blocks
    )


def _updates_after_all(trace: Trace, steps: Sequence[Window]) -> Trace:
    """Return `trace` with each step's update in the last micro-step of its window, traced or not."""
    last = np.array([len(window.divisors) - 1 for window in steps])
    micro_step = np.where(trace.phase == _OPTIMIZER, last[trace.step], trace.micro_step)
    return replace(trace, micro_step=micro_step.astype(ARRAYS["micro_step"]))
