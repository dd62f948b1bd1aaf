"""The scaler's rules under accumulation: unscale once, clip, step or skip, then the schedule."""

import pytest
import torch
from torch import nn
from toys import Line, Points, Values, custom, gradients

from memlab.events import Notice, StepFinished
from memlab.plan import Plan, PlanError
from memlab.training import notices
from memlab.training.loop import Trainer, train


def test_clipping_sees_unscaled_gradients() -> None:
    plan = custom(precision="fp16-mixed", clip_norm=1.0, micro_batch_size=1, gradient_accumulation_steps=2)
    trainer = Trainer(plan, Values([3.0] * 4))

    finished = trainer.step()

    assert trainer.model.weight.item() == pytest.approx(1.0 - 1.0, abs=1e-6)
    assert (finished.gradient_norm, finished.loss_scale) == (pytest.approx(3.0), 65536.0)


@pytest.mark.parametrize("k", [1, 4])
def test_gradients_are_unscaled_once_a_window(k: int) -> None:
    plan = custom(
        precision="fp16-mixed",
        initial_loss_scale=1024.0,
        micro_batch_size=4 // k,
        gradient_accumulation_steps=k,
        zero_grad="before_forward",
    )

    assert gradients(plan, Values([1.0] * 8), steps=2)[0].item() == 1.0


class Overflowing(Values):
    """Its first window overflows FP16 in backward; the others do not."""

    calls = 0

    def loss_sum(self, model: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        self.calls += 1
        loss = super().loss_sum(model, batch)
        return loss * torch.inf if self.calls == 1 else loss


def test_an_overflow_skips_update_and_schedule_and_halves_the_scale() -> None:
    plan = custom(precision="fp16-mixed", learning_rate=1.0, warmup_steps=4, steps=4, micro_batch_size=1)
    events = list(train(plan, Overflowing([1.0] * 4)))
    steps = [event for event in events if isinstance(event, StepFinished)]

    assert [step.skipped for step in steps] == [True, False, False, False]
    assert [step.loss_scale for step in steps] == [65536.0, 32768.0, 32768.0, 32768.0]
    assert [step.learning_rate for step in steps] == [0.25, 0.25, 0.5, 0.75]
    said = [event.message for event in events if isinstance(event, Notice) and event.kind == "step-skipped"]
    assert said == [
        "Optimizer step 1 was skipped, and the schedule with it: a gradient was infinite or NaN at loss scale "
        "65536, which is now 32768."
    ]


def test_a_skipped_step_leaves_weights_and_no_gradient_behind() -> None:
    trainer = Trainer(custom(precision="fp16-mixed", micro_batch_size=1), Overflowing([1.0] * 4))

    assert trainer.step().skipped
    assert trainer.model.weight.item() == 1.0 and trainer.model.weight.grad is None
    trainer.step()
    assert trainer.model.weight.item() == 0.0


def test_the_scale_doubles_after_the_interval() -> None:
    plan = custom(
        precision="fp16-mixed",
        initial_loss_scale=8.0,
        loss_scale_growth_interval=2,
        steps=5,
        learning_rate=1e-3,
    )
    steps = [event for event in train(plan, Values([1.0] * 8)) if isinstance(event, StepFinished)]

    assert [step.loss_scale for step in steps] == [8.0, 8.0, 16.0, 16.0, 32.0]


def test_fp16_weights_under_a_scaler_are_refused() -> None:
    with pytest.raises(PlanError) as error:
        Trainer(custom(precision="fp16-mixed"), Values([1.0], lambda: Line().half()))

    assert str(error.value) == (
        "weight is FP16, but precision='fp16-mixed' keeps FP32 weights under its scaler, since FP16 gradients "
        "cannot be unscaled without loss: build the model in FP32 (model.float())."
    )


class Faint(Values):
    """Backward passes 2^-25 through an FP16 matrix product."""

    def loss_sum(self, model: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return model(batch[0][:, None]).float().sum() * 2.0**-25


@pytest.mark.parametrize(("scale", "expected"), [(1.0, 0.0), (2.0, 2.0**-25), (65536.0, 2.0**-25)])
def test_the_scale_keeps_what_fp16_cannot_hold(scale: float, expected: float) -> None:
    plan = custom(
        precision="fp16-mixed", initial_loss_scale=scale, micro_batch_size=1, zero_grad="before_forward"
    )
    found = gradients(plan, Faint([1.0], lambda: nn.Linear(1, 1, bias=False)))[0].item()

    assert found == expected


@pytest.mark.parametrize("precision", ["bf16-mixed", "fp16-mixed"])
def test_autocast_keeps_weights_and_gradients_in_fp32(precision: str) -> None:
    fields = {"zero_grad": "before_forward", "optimizer": "adamw", "initial_loss_scale": 256.0}
    trainer = Trainer(custom(precision=precision, **fields), Points())
    trainer.step()

    for parameter in trainer.model.parameters():
        assert parameter.dtype == parameter.grad.dtype == torch.float32
        assert trainer.optimizer.state[parameter]["exp_avg"].dtype == torch.float32


@pytest.mark.parametrize("fused", [None, True])
def test_a_fused_optimizer_skips_too(fused: bool | None) -> None:
    plan = custom(
        precision="fp16-mixed", optimizer="adamw", fused=fused, learning_rate=0.1, micro_batch_size=1
    )
    trainer = Trainer(plan, Overflowing([1.0] * 4))

    assert [trainer.step().skipped, trainer.model.weight.item()] == [True, 1.0]
    assert [trainer.step().skipped, trainer.model.weight.item() < 1.0] == [False, True]


@pytest.mark.parametrize(("precision", "name"), [("fp16-mixed", "FP16"), ("bf16-true", "BF16")])
def test_a_cpu_without_fast_half_precision_is_told_with_the_measured_factor(
    precision: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "times_as_long", lambda dtype: 23.4)
    (notice,) = notices.of_this_machine(Plan(precision=precision), torch.device("cpu"))

    assert notice.kind == "half-precision-slow"
    assert notice.message.startswith(
        f"This CPU has no fast {name}: a product of 128 x 128 matrices, timed before this run, took 23 times as long"
    )
    assert notices.of_this_machine(Plan(), torch.device("cpu")) == []

    monkeypatch.setattr(notices, "times_as_long", lambda dtype: 1.1)
    assert notices.of_this_machine(Plan(precision=precision), torch.device("cpu")) == []


def test_the_factor_is_measured_without_a_random_number() -> None:
    before = torch.get_rng_state()

    assert notices.times_as_long(torch.float16) > 0

    assert torch.equal(torch.get_rng_state(), before)
