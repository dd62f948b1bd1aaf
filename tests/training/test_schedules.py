"""Schedules count updates, not micro-steps."""

import math

import pytest
from toys import Values, custom

from memlab.events import StepFinished
from memlab.training.loop import train


def rates(**fields: object) -> list[float]:
    plan = custom(micro_batch_size=1, **fields)
    return [e.learning_rate for e in train(plan, Values([0.0] * 8)) if isinstance(e, StepFinished)]


def test_a_warm_up_of_25_steps_peaks_at_update_25_whatever_k() -> None:
    found = rates(gradient_accumulation_steps=4, warmup_steps=25, steps=27)

    assert found == pytest.approx([n / 25 for n in range(1, 26)] + [1.0, 1.0])
    assert found.index(1.0) + 1 == 25


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 1, 3])
def test_decay_falls_from_the_peak_and_would_reach_zero_after_the_last_step(
    schedule: str, warmup: int
) -> None:
    found = rates(schedule=schedule, warmup_steps=warmup, steps=9)
    peak = max(warmup, 1)
    t = [(update - peak) / (10 - peak) for update in range(peak, 10)]
    shape = [1 - x if schedule == "linear" else (1 + math.cos(math.pi * x)) / 2 for x in t]

    assert found[peak - 1 :] == pytest.approx(shape)
    assert found[peak - 1] == max(found) == 1.0 and found[-1] > 0


def test_a_warm_up_longer_than_the_run_keeps_rising() -> None:
    assert rates(schedule="cosine", warmup_steps=10, steps=3) == pytest.approx([0.1, 0.2, 0.3])
