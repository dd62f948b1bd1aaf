"""One Run of several ranks: what each process measured, brought together on all of them."""

from dataclasses import replace
from typing import Any

import torch.distributed as dist

from memlab.run import Run


def merged(run: Run) -> Run:
    """Return `run` with the ranks of all processes and the largest peaks of any; its trace stays this rank's.

    Every rank must call it.
    """
    if run.plan.world_size == 1:
        return run
    parts: list[Any] = [None] * run.plan.world_size
    dist.all_gather_object(parts, replace(run, trace=None))
    runs: list[Run] = parts
    highest = max(runs, key=lambda one: one.peak.total)  # the lowest rank of equals
    return replace(
        run,
        peak=highest.peak,
        peaks_by_phase=highest.peaks_by_phase,
        step_peaks=tuple(map(max, zip(*(one.step_peaks for one in runs), strict=False))),
        peak_allocated=max(one.peak_allocated for one in runs),
        peak_reserved=max(one.peak_reserved for one in runs),
        ranks=tuple(replace(one.ranks[0], rank=number) for number, one in enumerate(runs)),
        notices=tuple(dict.fromkeys(notice for one in runs for notice in one.notices)),
    )
