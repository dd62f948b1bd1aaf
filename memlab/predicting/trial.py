"""Run the training loop of a plan on tensors without data, metered."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass

import torch

from memlab.memory.meter import Meter
from memlab.plan import Plan
from memlab.predicting.card_device import card_device
from memlab.predicting.dataless import DatalessMode, without_data
from memlab.predicting.refusals import refusals_explained
from memlab.predicting.rules import cpu, cuda
from memlab.predicting.rules.autocast import weight_cache
from memlab.predicting.rules.composites import AMPERE, predicting_for
from memlab.trace import Breakdown, Trace
from memlab.training.loop import Trainer
from memlab.training.window import Window
from memlab.workload import Workload


@dataclass(frozen=True, eq=False)
class Trial:
    """What the steps of a plan allocate."""

    trace: Trace
    peak: Breakdown
    peaks_by_phase: Mapping[str, Breakdown]
    step_peaks: tuple[int, ...]
    notices: tuple[str, ...]


def trial(
    plan: Plan, workload: Workload, steps: Iterable[Window], capability: tuple[int, int] | None = None
) -> Trial:
    """Train `plan` on `steps` without data: nothing is computed, and no parameter gets a value.

    By the rules of a card with this compute capability; None: by the CPU's.
    """
    device = torch.device("cpu") if capability is None else card_device()
    mode = DatalessMode(device, cpu.RULES if capability is None else cuda.RULES)
    meter = Meter(device=device, dataless=mode)
    mode.ledger = meter.ledger
    custom = workload if plan.model == "custom" else None
    with ExitStack() as stack:
        stack.enter_context(closing(meter))
        stack.enter_context(refusals_explained())
        stack.enter_context(predicting_for(capability or AMPERE))
        stack.enter_context(weight_cache())
        stack.enter_context(without_data(mode))
        alone = plan.of_one_rank
        with closing(Trainer(alone, custom, meter=meter, dataless_device=device)) as trainer:
            for window in steps:
                trainer.run(window)
                trainer.steps_done += 1
            notices = tuple(notice.message for notice in trainer.take_notices())
        return Trial(meter.trace, meter.peak, meter.peaks_by_phase, meter.step_peaks, notices)
