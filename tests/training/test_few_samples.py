"""A global batch larger than the data: what is measured and predicted is that of the data, and it is said."""

import pytest

import memlab
from memlab import Plan

SAMPLES = 1797
"""Of the digits."""


def said(batch: int) -> str:
    return (
        f"The data have 1,797 samples, fewer than a global batch of {batch:,}, so each optimizer step sees 1,797, "
        "and the figures are those of 1,797: make the global batch smaller or bring more data."
    )


@pytest.mark.parametrize("sizes", [(2000, 1), (600, 4)])
def test_it_is_said_of_a_measured_run_and_of_its_prediction(sizes: tuple[int, int]) -> None:
    micro, k = sizes
    plan = Plan(
        model="mlp", micro_batch_size=micro, gradient_accumulation_steps=k, steps=2, device="cpu", fused=True
    )

    measured, predicted = memlab.measure(plan), memlab.predict(plan, card="t4")

    assert measured.notices == predicted.notices == (said(micro * k),)


def test_the_largest_micro_batch_is_the_data() -> None:
    whole = Plan(model="mlp", micro_batch_size=SAMPLES, steps=2, device="cpu")
    more = Plan(model="mlp", micro_batch_size=SAMPLES + 203, steps=2, device="cpu")

    runs = memlab.predict(whole, card="t4"), memlab.predict(more, card="t4")

    assert runs[0].notices == ()
    assert runs[0].peak == runs[1].peak


def test_a_text_may_be_cut_into_more_samples() -> None:
    plan = Plan(model="gpt2", micro_batch_size=2000, activation_checkpointing="full", steps=2)

    [notice] = memlab.predict(plan, card="b200").notices

    assert ": make the global batch smaller, choose a shorter sequence_length or bring more data." in notice
