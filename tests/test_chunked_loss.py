"""A loss in chunks is the same function, and holds the logits of one chunk at a time."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import memlab
from memlab import Meter, Plan, PlanError
from memlab.cross_entropy import chunked_cross_entropy
from memlab.training.loop import Trainer

TEXT = {"model": "gpt-tiny", "sequence_length": 16, "micro_batch_size": 3, "steps": 2, "device": "cpu"}
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"lora_rank": 2},
    {"data": "ragged-text", "gradient_accumulation_steps": 2},
    {"activation_checkpointing": "full", "gradient_accumulation_steps": 2},
)
ROUNDING = {"fp32": 2e-6, "bf16-mixed": 2**-7, "fp16-mixed": 2**-10, "bf16-true": 2**-6}
"""Of the largest entry of each gradient: FP32's own; one or two roundings of the products' precision; with
BF16 weights one for each chunk, as their gradient is summed in BF16."""


def sample(tokens: int, width: int, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, a head's weight and labels, every third of which is ignored."""
    torch.manual_seed(0)
    labels = torch.randint(classes, (tokens,))
    labels[::3] = -100
    features, weight = torch.randn(tokens, width), torch.randn(classes, width) / width**0.5
    return features.requires_grad_(), weight.requires_grad_(), labels


def gradients(plan: Plan) -> tuple[float, list[Tensor]]:
    """Return the loss of the first step, and the gradients that it leaves."""
    trainer = Trainer(plan)
    loss = trainer.step().loss
    return loss, [it.grad.float() for it in trainer.model.parameters() if it.grad is not None]


@pytest.mark.parametrize("chunks", [1, 2, 3, 7, 20])
def test_in_fp64_value_and_gradients_are_those_of_torchs_cross_entropy(chunks: int) -> None:
    features, weight, labels = (it.double() if it.is_floating_point() else it for it in sample(20, 8, 11))
    inputs = [features.detach().requires_grad_(), weight.detach().requires_grad_()]

    whole = functional.cross_entropy(inputs[0] @ inputs[1].t(), labels, reduction="sum")
    parts = chunked_cross_entropy(*inputs, labels, chunks)

    assert parts.item() == pytest.approx(whole.item(), rel=1e-6)
    for mine, torchs in zip(
        *(torch.autograd.grad(loss * 0.5, inputs) for loss in (parts, whole)), strict=True
    ):
        torch.testing.assert_close(mine, torchs, rtol=1e-5, atol=1e-6)  # the logits are FP32


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("precision", ROUNDING)
def test_the_gradient_is_that_of_the_whole_loss_to_rounding(precision: str, settings: dict[str, Any]) -> None:
    fields = {**TEXT, **settings, "precision": precision, "zero_grad": "before_forward"}
    fields["initial_loss_scale"] = 1024.0
    whole, parts = (gradients(Plan(**fields, loss_chunks=chunks)) for chunks in (1, 5))

    assert parts[0] == pytest.approx(whole[0], rel=1e-6)
    for mine, other in zip(parts[1], whole[1], strict=True):
        assert (mine - other).abs().max() <= ROUNDING[precision] * other.abs().max()


@pytest.mark.parametrize("precision", ROUNDING)
def test_a_prediction_equals_the_measurement(precision: str) -> None:
    plan = Plan(**TEXT, precision=precision, loss_chunks=5, gradient_accumulation_steps=2)
    predicted, measured = memlab.predict(plan), memlab.measure(plan)

    assert predicted.peaks_by_phase == measured.peaks_by_phase
    assert predicted.step_peaks == measured.step_peaks
    assert predicted.trace.end == measured.trace.end


@pytest.mark.parametrize("chunks", [1, 2, 4, 8])
def test_it_holds_two_copies_of_a_chunk_and_the_gradients(chunks: int) -> None:
    tokens, width, classes = 64, 16, 1000
    features, weight, labels = sample(tokens, width, classes)
    torch.ones(())  # what backward starts from is made within
    with Meter(device=torch.device("cpu")) as meter:
        loss = chunked_cross_entropy(features, weight, labels, chunks)
        loss.backward()
    forward, backward = (meter.peaks_by_phase[phase].total for phase in ("forward", "backward"))

    rows = tokens // chunks
    copies, given = 2 * rows * classes * 4, (tokens * width + classes * width) * 4 + tokens * 8
    # beside the loss: its part of this chunk, and what nll_loss counts
    assert forward == given + copies + 4
    assert backward - forward <= (tokens * width + classes * width) * 4 + 8  # the gradients


def test_of_a_head_that_is_frozen_no_gradient_is_made() -> None:
    features, weight, labels = sample(64, 16, 1000)
    peaks = []
    for trained in (True, False):
        with Meter(device=torch.device("cpu")) as meter:
            chunked_cross_entropy(features, weight.requires_grad_(trained), labels, 8).backward()
        peaks.append(meter.peaks_by_phase["backward"].total)
        features.grad = weight.grad = None

    assert peaks[0] - peaks[1] == weight.numel() * 4


def test_more_chunks_need_less_where_the_vocabulary_is_large() -> None:
    plans = (
        Plan(model="gpt2", micro_batch_size=8, steps=1, optimizer="sgd", loss_chunks=chunks)
        for chunks in (1, 2, 8)
    )
    peaks = [memlab.predict(plan, card="a100-40gb").peak.total for plan in plans]

    assert peaks == sorted(peaks, reverse=True) and len({*peaks}) == 3


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"loss_chunks": 0}, "loss_chunks=0 must be at least 1."),
        ({"loss_chunks": 2.0}, "loss_chunks=2.0 must be a whole number, 1 or more."),
        (
            {"loss_chunks": 2, "model": "convnet"},
            "loss_chunks=2 needs a model that predicts the next token of a text; model='convnet' is none: set it to 1.",
        ),
        (
            {"loss_chunks": 33, "micro_batch_size": 2, "sequence_length": 16},
            "loss_chunks=33 is more than micro_batch_size x sequence_length = 32 tokens: choose 32 or less.",
        ),
        (
            {"loss_chunks": 2, "model": "custom"},
            "loss_chunks=2 does not reach into a Workload's own loss: call "
            "memlab.cross_entropy.chunked_cross_entropy in its loss_sum, and leave loss_chunks out.",
        ),
    ],
)
def test_an_impossible_number_of_chunks_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanError) as error:
        Plan(**fields)

    assert str(error.value) == sentence
