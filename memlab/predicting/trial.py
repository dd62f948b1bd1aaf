"""Run the training loop of a plan on tensors without data, metered."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import torch

from memlab.memory.meter import Meter
from memlab.plan import Plan
from memlab.predicting.dataless import DatalessMode, Rule, without_data
from memlab.predicting.refusals import refusals_explained
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
    plan: Plan,
    workload: Workload,
    steps: Iterable[Window],
    device: torch.device,
    rules: Mapping[Any, Rule] | None = None,
) -> Trial:
    """Train `plan` on `steps` without data: nothing is computed, and no parameter gets a value."""
    meter = Meter()
    alone = replace(plan, world_size=1)
    custom = workload if plan.model == "custom" else None
    with refusals_explained(), without_data(DatalessMode(device, rules)), closing(meter):
        with closing(Trainer(alone, custom, meter=meter, dataless_device=device)) as trainer:
            for window in steps:
                trainer.run(window)
                trainer.steps_done += 1
            notices = tuple(notice.message for notice in trainer.take_notices())
            return Trial(meter.trace, meter.peak, meter.peaks_by_phase, meter.step_peaks, notices)
