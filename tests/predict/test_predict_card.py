"""A prediction for a card follows CUDA's rules, and says what it leaves out."""

import pytest
import torch
from torch import nn

import memlab
from memlab import Plan, PlanError, Run
from memlab.memory.beyond import beyond_allocator
from memlab.memory.cards import CardError, card

SMALL = {"model": "gpt-tiny", "sequence_length": 32, "micro_batch_size": 4, "steps": 2}
"""Shapes that most tests share: torch computes those of an operation once."""


def test_a_card_predicts_without_a_gpu_and_the_figures_agree() -> None:
    run = memlab.predict(Plan(**SMALL, device="auto"), card="a100-80gb")

    replay = memlab.replay(run.trace)
    assert (run.source, run.losses, run.fits) == ("predicted", (), True)
    assert run.peak.total == replay.peak_requested <= run.peak_allocated <= run.peak_reserved
    assert (run.peak_allocated, run.peak_reserved) == (replay.peak_allocated, replay.peak_reserved)
    assert run.environment["device"] == "card:a100-80gb"
    assert "cuDNN" in run.environment["leaves_out"] and run.environment["torch"] == torch.__version__
    assert Run.from_json(run.to_json()) == run


def test_cuda_counts_steps_on_the_host_and_updates_all_weights_at_once() -> None:
    plan = Plan(**SMALL, device="cpu")
    here, there = memlab.predict(plan), memlab.predict(plan, card="t4")

    numbers = here.peak["optimizer_state"] - there.peak["optimizer_state"]

    tensors = sum(1 for size in there.trace.start if size) and len(there.trace.held)
    assert there.trace.start == here.trace.start
    assert numbers == 4 * tensors, "one FP32 count for each weight"
    assert memlab.predict(Plan(**SMALL, foreach=True), card="t4").trace == there.trace
    assert there.peaks_by_phase["optimizer"]["temporaries"] >= there.peak["parameters"]


def test_fused_updates_need_no_temporaries() -> None:
    run = memlab.predict(Plan(**SMALL, fused=True), card="a100-40gb")

    assert run.peaks_by_phase["optimizer"]["temporaries"] < 4096


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "fp16-mixed", "bf16-true"])
def test_the_peak_is_the_same_for_two_micro_steps_and_for_more(precision: str) -> None:
    two, eight = (
        memlab.predict(
            Plan(model="mlp", precision=precision, gradient_accumulation_steps=k, steps=2), card="a100-40gb"
        )
        for k in (2, 8)
    )

    assert two.peak.sizes == eight.peak.sizes
    assert (two.peak_allocated, two.peak_reserved) == (eight.peak_allocated, eight.peak_reserved)


def test_accumulation_costs_at_most_one_gradient() -> None:
    one, two = (
        memlab.predict(Plan(**SMALL, gradient_accumulation_steps=k), card="a100-40gb") for k in (1, 2)
    )

    extra = two.peak.total - one.peak.total

    assert 0 <= extra <= one.peak["parameters"], f"{extra=:,}"


def test_checkpointing_lowers_the_activations() -> None:
    plain, recomputed = (
        memlab.predict(Plan(**SMALL, activation_checkpointing=policy), card="a100-40gb")
        for policy in ("none", "full")
    )

    at_backward = [run.peaks_by_phase["backward"]["activations"] for run in (plain, recomputed)]
    assert at_backward[1] < at_backward[0]


@pytest.mark.parametrize("precision", ["bf16-mixed", "fp16-mixed"])
def test_autocast_keeps_casted_weights_as_on_a_card(precision: str) -> None:
    run = memlab.predict(Plan(**SMALL, precision=precision), card="a100-40gb")

    forward = run.peaks_by_phase["forward"]
    assert 0 < forward["low_precision_copies"] <= forward["parameters"] // 2


def test_what_does_not_fit_says_so_with_the_peak_of_an_endless_card() -> None:
    plan = Plan(**{**SMALL, "micro_batch_size": 2048, "sequence_length": 256})
    small, large = memlab.predict(plan, card="rtx-4060"), memlab.predict(plan, card="h200")

    assert (small.fits, large.fits) == (False, True)
    assert small.peak_reserved > card("rtx-4060").memory_bytes
    assert (
        large.peak_reserved <= card("h200").memory_bytes - beyond_allocator(card("h200"))["cuda_context_low"]
    )


def test_a_card_without_bf16_says_that_it_emulates() -> None:
    run = memlab.predict(Plan(**SMALL, precision="bf16-mixed"), card="t4")

    assert [notice for notice in run.notices if "emulates precision='bf16-mixed'" in notice]


def test_skipped_steps_and_other_ranks_are_said_to_be_left_out() -> None:
    run = memlab.predict(Plan(**SMALL, precision="fp16-mixed", world_size=2), card="t4")

    assert run.environment["loss_scale"] == "no step is skipped for an infinite gradient"
    assert "DDP" in run.environment["ranks"] and [rank.rank for rank in run.ranks] == [0, 1]


def test_an_unknown_card_is_refused() -> None:
    with pytest.raises(CardError, match="card='a200' is not in the table"):
        memlab.predict(Plan(**SMALL), card="a200")
    with pytest.raises(CardError, match="card=5 is not in the table; choose rtx-5090"):
        memlab.predict(Plan(**SMALL), card=5)


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(PlanError, match="'gpt2' is no Plan: say what to predict as in predict"):
        memlab.predict("gpt2", card="t4")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_cuda_plan_without_a_card_needs_the_gpu() -> None:
    with pytest.raises(PlanError, match="needs a GPU that this torch"):
        memlab.predict(Plan(**SMALL, device="cuda"))


def test_a_prediction_works_after_the_process_has_trained() -> None:
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()  # autograd's threads are made at the first backward

    assert memlab.predict(Plan(**SMALL, seed=5), card="t4").peak.total
