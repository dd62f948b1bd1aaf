"""Predict what a plan needs: the training loop on tensors without data."""

import os
from functools import lru_cache

import torch

from memlab.device import resolve_device
from memlab.engine.environment import environment
from memlab.plan import Plan
from memlab.predicting.rules import cpu
from memlab.predicting.steps import Steps, steps_to_trace
from memlab.predicting.trial import trial
from memlab.run import Rank, Run
from memlab.workload import Workload, workload_for


def predict(plan: Plan, card: str | None = None, workload: Workload | None = None) -> Run:
    """Return what `plan` would need, without training it.

    Without `card` by the rules of the plan's own device; on the CPU that is what `measure` finds, to
    the byte.
    """
    device = resolve_device(plan.device)
    if workload is not None:
        return _on_cpu(plan, workload)
    return _cached(plan, device)


@lru_cache(maxsize=256)
def _cached(plan: Plan, device: torch.device) -> Run:
    return _on_cpu(plan, workload_for(plan))


def _on_cpu(plan: Plan, workload: Workload) -> Run:
    device = torch.device("cpu")
    steps = steps_to_trace(plan, workload)
    found = trial(plan, workload, steps.traced, device, cpu.RULES)
    return Run(
        plan=plan,
        source="predicted",
        losses=(),
        peak=found.peak,
        peak_allocated=found.peak.total,
        peak_reserved=found.peak.total,
        fits=True,
        peaks_by_phase=found.peaks_by_phase,
        step_peaks=_step_peaks(plan, steps, found.step_peaks),
        environment=environment(device),
        ranks=(Rank(pid=os.getpid(), peak=found.peak),),
        trace=found.trace,
        notices=found.notices,
    )


def _step_peaks(plan: Plan, steps: Steps, peaks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the peak of each step of the run, where later ones repeat the second; else of those traced."""
    if not steps.uniform:
        return peaks
    return peaks + peaks[-1:] * (plan.steps - len(peaks))
