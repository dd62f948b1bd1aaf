"""The memory values that people reported, rebuilt small: N(n, d) is in programs.py."""

import numpy as np
import pytest
import torch
from programs import metered, sgd
from torch.utils.checkpoint import checkpoint

from memlab.trace import PHASES
from memlab.units import MiB

adamw = torch.optim.AdamW


def in_mib(size: int) -> float:
    return round(size / MiB, 2)


@pytest.mark.parametrize(
    "zero, expected",
    [("before_forward", 26.52), ("after_step", 26.52), ("before_backward", 37.05), ("in_place", 38.55)],
)
def test_where_the_gradients_are_zeroed(zero, expected) -> None:
    assert in_mib(metered(12, 512, 256, zero=zero).peak.total) == expected


def test_the_second_step_needs_more_because_adam_made_its_state_in_the_first() -> None:
    steps = metered(6, 256, 2048, adamw, steps=2).step_peaks
    assert [in_mib(peak) for peak in steps] == [35.51, 38.52]


@pytest.mark.parametrize("micro_steps", [4, 16])
def test_backward_for_each_micro_batch_does_not_depend_on_their_number(micro_steps) -> None:
    assert in_mib(metered(6, 256, 64, adamw, steps=2, micro_steps=micro_steps).peak.total) == 7.09


@pytest.mark.parametrize("micro_steps, expected", [(4, 8.84), (16, 18.59)])
def test_one_backward_for_the_sum_of_losses_keeps_every_graph(micro_steps, expected) -> None:
    meter = metered(6, 256, 64, adamw, steps=2, micro_steps=micro_steps, sum_losses=True)
    assert in_mib(meter.peak.total) == expected


@pytest.mark.parametrize(
    "autocast, end_of_forward, peak", [(None, 24.43, 48.11), (torch.bfloat16, 34.29, 50.08)]
)
def test_autocast_costs_memory_where_weights_outweigh_activations(autocast, end_of_forward, peak) -> None:
    meter = metered(6, 1024, 8, autocast=autocast)
    forward = meter.trace.steps()[1]
    inside = np.flatnonzero(forward.phase == PHASES.index("forward"))
    # With autocast the program's `del y` frees the BF16 output after its forward, and the seed of
    # backward (4 B) comes last; the table's "end of forward" is before both.
    end = inside[-1] if autocast is None else inside[-3]
    assert in_mib(int(forward.totals[end])) == end_of_forward
    assert in_mib(meter.peak.total) == peak


@pytest.mark.parametrize("autocast, peak", [(None, 69.5), (torch.bfloat16, 50.1)])
def test_autocast_saves_memory_where_activations_outweigh_weights(autocast, peak) -> None:
    assert round(metered(6, 256, 4096, autocast=autocast).peak.total / MiB, 1) == peak


def by_pairs(model, x):
    """Recompute each [Linear, GELU]; the segment must hold more than its input."""
    x.requires_grad_()
    for first in range(0, len(model), 2):
        x = checkpoint(model[first : first + 2], x, use_reentrant=False)
    return x


@pytest.mark.parametrize("forward, peak", [(None, 44.01), (by_pairs, 28.01)])
def test_checkpointing_keeps_the_inputs_of_segments_alone(forward, peak) -> None:
    assert in_mib(metered(8, 256, 2048, sgd, forward=forward).peak.total) == peak


def test_foreach_costs_about_one_more_copy_of_the_weights_in_the_step() -> None:
    plain = metered(6, 256, 4, lambda p: adamw(p, foreach=False), steps=2)
    foreach = metered(6, 256, 4, lambda p: adamw(p, foreach=True), steps=2)
    fused = metered(6, 256, 4, lambda p: adamw(p, fused=True), steps=2)

    weights = plain.peak["parameters"]
    extra = foreach.peaks_by_phase["optimizer"].total - fused.peaks_by_phase["optimizer"].total

    assert fused.peaks_by_phase["optimizer"]["temporaries"] == 0
    assert 0.9 * weights < extra < 1.2 * weights, f"{extra=:,} {weights=:,}"
    assert plain.peaks_by_phase["optimizer"].total < foreach.peaks_by_phase["optimizer"].total
