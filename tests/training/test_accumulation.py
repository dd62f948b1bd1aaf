"""Accumulation gives the gradient and the loss of the whole window."""

import inspect
import math

import pytest
import torch
from toys import Line, Points, Values, custom, gradients, weights, window

from memlab.events import Notice, StepFinished
from memlab.plan import Plan, PlanError
from memlab.training.loop import Trainer, train
from memlab.training.step import optimizer_step

NAN = math.nan


def test_unequal_micro_batches_weigh_by_their_items() -> None:
    workload = Values([1.0] * 8 + [9.0] * 2)
    trainer = Trainer(custom(zero_grad="before_forward"), workload)

    finished = trainer.step(window(workload, range(8), range(8, 10)))

    assert (round(finished.loss, 6), finished.items, finished.micro_steps) == (2.6, 10, 2)
    assert trainer.model.weight.grad.item() == pytest.approx(2.6, rel=1e-6)


def test_ignored_labels_count_nothing() -> None:
    workload = Values([1.0] * 8 + [9.0] * 2 + [NAN] * 6)
    trainer = Trainer(custom(zero_grad="before_forward"), workload)

    finished = trainer.step(window(workload, [*range(8), 10, 11], [8, 9, 12, 13, 14], [15]))

    assert (round(finished.loss, 6), finished.items) == (2.6, 10)
    assert trainer.model.weight.grad.item() == pytest.approx(2.6, rel=1e-6)


def test_ragged_text_is_normalised_over_the_window() -> None:
    fields = {"data": "ragged-text", "sequence_length": 32, "steps": 2, "learning_rate": 1e-3}

    whole = [e.loss for e in train(Plan(micro_batch_size=4, **fields)) if isinstance(e, StepFinished)]
    split = train(Plan(micro_batch_size=1, gradient_accumulation_steps=4, **fields))

    assert [e.loss for e in split if isinstance(e, StepFinished)] == pytest.approx(whole, rel=1e-5)


def test_the_short_tail_is_divided_by_what_it_holds() -> None:
    workload = Values([1.0] * 12)
    trainer = Trainer(
        custom(micro_batch_size=2, gradient_accumulation_steps=4, zero_grad="before_forward"), workload
    )

    found = [(trainer.step().micro_steps, trainer.model.weight.grad.item()) for _ in range(4)]

    assert found == [(4, 1.0), (2, 1.0), (4, 1.0), (2, 1.0)]


def test_k_larger_than_the_epoch_trains_once_an_epoch() -> None:
    events = list(
        train(custom(micro_batch_size=1, gradient_accumulation_steps=4, steps=3), Values([1.0] * 3))
    )
    steps = [event for event in events if isinstance(event, StepFinished)]

    assert [(step.epoch, step.micro_steps, step.samples_seen) for step in steps] == [
        (0, 3, 3),
        (1, 3, 6),
        (2, 3, 9),
    ]


# 2^-24 of FP32 through 4 layers; BF16 rounds activations to 2^-9, FP16 to 2^-12, alike for each sample, so
# sums differ by order only; BF16 gradients are rounded to 2^-9 at every addition.
TOLERANCES = {"fp32": 1e-6, "bf16-mixed": 2e-2, "fp16-mixed": 2e-3, "bf16-true": 5e-2}


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("k", [2, 4, 8])
def test_gradients_do_not_depend_on_k(precision: str, k: int) -> None:
    fields = {"precision": precision, "zero_grad": "before_forward", "initial_loss_scale": 1024.0}
    whole = gradients(custom(micro_batch_size=16, **fields), Points())
    split = gradients(custom(micro_batch_size=16 // k, gradient_accumulation_steps=k, **fields), Points())

    largest = max(gradient.abs().max().item() for gradient in whole)
    error = max((a - b).abs().max().item() for a, b in zip(whole, split, strict=True))
    assert error <= TOLERANCES[precision] * largest, f"{error=} {largest=}"


def test_64_times_2_is_128_up_to_rounding() -> None:
    workload = Points(256)
    whole = weights(custom(micro_batch_size=128, learning_rate=0.1), workload, steps=4)
    split = weights(
        custom(micro_batch_size=64, gradient_accumulation_steps=2, learning_rate=0.1), workload, steps=4
    )

    for one, other in zip(whole, split, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("when", ["before_forward", "before_backward", "in_place"])
@pytest.mark.parametrize("precision", ["fp32", "bf16-true"])
def test_no_gradient_leaks_wherever_it_is_zeroed(when: str, precision: str) -> None:
    fields = {"micro_batch_size": 3, "gradient_accumulation_steps": 4, "learning_rate": 0.1}
    workload = Points(30)

    expected = weights(custom(precision=precision, **fields), workload, steps=7)
    found = weights(custom(precision=precision, zero_grad=when, **fields), workload, steps=7)

    assert all(map(torch.equal, expected, found))


@pytest.mark.parametrize("when", ["after_step", "before_forward", "before_backward", "in_place"])
def test_gradients_live_as_long_as_the_plan_says(when: str) -> None:
    trainer = Trainer(custom(zero_grad=when), Values([1.0] * 8))
    trainer.step()

    left = trainer.model.weight.grad

    expected = {"after_step": None, "in_place": 0.0}.get(when, 1.0)
    assert (left if left is None else left.item()) == expected


@pytest.mark.parametrize("k", [1, 4])
def test_the_learning_rate_does_not_change_with_k(k: int) -> None:
    plan = custom(learning_rate=0.25, micro_batch_size=4 // k, gradient_accumulation_steps=k)

    assert Trainer(plan, Values([1.0] * 8)).step().learning_rate == 0.25


class Pairs(Values):
    """Each sample is told from the others of its micro-batch: -log softmax over them."""

    couples_samples = True

    def loss_sum(self, model: Line, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        scores = model(batch[0])[:, None] * batch[0]
        return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)), reduction="sum")


def test_a_contrastive_loss_has_no_gradient_in_micro_batches_of_one_and_says_so() -> None:
    plan = custom(micro_batch_size=1, gradient_accumulation_steps=4, zero_grad="before_forward")
    trainer = Trainer(plan, Pairs([0.5, 1.0, 2.0, 3.0]))
    trainer.step()
    together = gradients(custom(micro_batch_size=4, zero_grad="before_forward"), Pairs([0.5, 1.0, 2.0, 3.0]))

    assert trainer.model.weight.grad.item() == 0.0 != together[0].item()
    assert [(notice.kind, notice.message) for notice in trainer.take_notices()] == [
        (
            "coupled-loss",
            "The loss of Pairs compares samples within a micro-batch, so 4 micro-batches of 1 train another "
            "function than a batch of 4: raise micro_batch_size and use activation checkpointing instead.",
        )
    ]


def test_a_window_without_labels_is_refused() -> None:
    with pytest.raises(
        PlanError, match=r"^optimizer step 1 has no label to learn from: all labels of its 2 "
    ):
        Trainer(custom(micro_batch_size=2), Values([NAN] * 4)).step()


def test_a_lost_loss_is_said_once() -> None:
    events = list(train(custom(steps=3, micro_batch_size=1), Values([math.inf])))

    said = [event.message for event in events if isinstance(event, Notice)]
    assert said == [
        "The loss of optimizer step 1 is inf: lower the learning rate, warm up longer or clip the gradients."
    ]


def test_several_ranks_need_several_processes() -> None:
    with pytest.raises(PlanError) as error:
        next(train(custom(world_size=2, gradient_accumulation_steps=3), Values([1.0])))

    assert str(error.value) == (
        "world_size=2 needs as many processes, and this one is alone: memlab.measure(plan), memlab.train(plan) "
        "and the bench start them, as `torchrun --nproc-per-node 2` does; or set world_size=1 and "
        "gradient_accumulation_steps=6 for the same global batch."
    )


def test_a_workload_goes_with_a_custom_model_alone() -> None:

    with pytest.raises(
        PlanError, match="^model='gpt-tiny' brings its own workload: leave yours out, or set "
    ):
        next(train(Plan(), Values([1.0])))


def test_the_step_fits_on_a_page_and_chooses_nothing() -> None:
    lines = inspect.getsource(optimizer_step).splitlines()
    conditions = [line.strip() for line in lines if line.strip().startswith(("if ", "elif "))]

    assert len(lines) < 45, len(lines)
    assert [line.split(":")[0] for line in conditions] == ["if updated"]


class Marks:
    """A meter that notes what it is told."""

    def __init__(self) -> None:
        self.said: list[object] = []

    def watch(self, model: object, optimizer: object) -> None:
        self.said.append("watch")

    def recording(self) -> "Marks":
        return self

    def __enter__(self) -> None:
        self.said.append("begin")

    def __exit__(self, *error: object) -> None:
        self.said.append("end")

    def mark(self, phase: str, micro_step: int = 0) -> None:
        self.said.append((phase, micro_step) if phase != "optimizer" else phase)

    def close(self) -> None:
        self.said.append("close")


def test_the_meter_is_told_each_phase_within_the_step_alone() -> None:
    meter = Marks()
    events = train(
        custom(steps=1, gradient_accumulation_steps=2, micro_batch_size=1), Values([1.0] * 4), meter=meter
    )

    next(events)
    assert meter.said == ["watch"]
    next(events)
    assert meter.said[1:] == [
        "begin",
        ("forward", 0),
        ("backward", 0),
        ("forward", 1),
        ("backward", 1),
        "optimizer",
        "end",
    ]
    events.close()
    assert meter.said[-1] == "close" and meter.said.count("end") == 1
