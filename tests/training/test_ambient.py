"""What the program around a run has set for itself does not reach the run, and stays set."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from toys import Points, custom

from memlab.engine.predict import predict
from memlab.events import StepFinished
from memlab.training.loop import train

FIELDS = {"dropout": 0.5, "steps": 4, "micro_batch_size": 8, "learning_rate": 0.1}


@contextmanager
def fp64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def meta_by_default() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


AROUND = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast without cache": lambda: torch.autocast("cpu", torch.float16, cache_enabled=False),
    "default dtype": fp64_by_default,
    "default device": meta_by_default,
    "with device": lambda: torch.device("meta"),
}


def ambient() -> tuple[object, ...]:
    """Return what a program may set around a run."""
    torch.autocast_increment_nesting()
    return (
        torch.autocast_decrement_nesting(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.get_default_device(),
    )


class Made(Points):
    """Makes its batches by what torch has as defaults."""

    def batch(self, indices: Sequence[int]) -> tuple[torch.Tensor, ...]:
        inputs = torch.tensor([[index / 64] * 8 for index in indices])
        return inputs, torch.tensor([index % 3 for index in indices])


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("around", AROUND)
def test_what_the_program_around_has_set_changes_nothing_and_stays_set(around: str, precision: str) -> None:
    plan, workload = custom(**FIELDS, precision=precision), Made()

    def found() -> list[float]:
        return [event.loss for event in train(plan, workload) if isinstance(event, StepFinished)]

    alone = found()
    with AROUND[around]():
        before = ambient()
        assert all(ambient() == before for _ in train(plan, workload))
        assert found() == alone
        assert ambient() == before


@pytest.mark.parametrize("around", AROUND)
def test_a_prediction_does_not_depend_on_the_program_around(around: str) -> None:
    plan = custom(**FIELDS, precision="bf16-mixed")
    alone = predict(plan, workload=Made())

    with AROUND[around]():
        within = predict(plan, workload=Made())

    assert (within.peak, within.step_peaks) == (alone.peak, alone.step_peaks)


def test_an_error_restores_what_the_program_around_has_set() -> None:
    class Broken(Made):
        def loss_sum(self, model: torch.nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
            raise OSError("gone")

    with fp64_by_default(), torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        before = ambient()
        with pytest.raises(OSError, match="^gone$"):
            list(train(custom(**FIELDS), Broken()))
        assert ambient() == before
