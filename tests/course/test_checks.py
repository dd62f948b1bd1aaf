"""A check says right, or what the wrong answer shows; it never shows the answer."""

from dataclasses import replace
from operator import truediv
from typing import Any

import pytest

from memlab.course import check, predict
from memlab.course.checks import questions
from memlab.course.guesses import _KEPT
from memlab.course.lesson_01 import BUDGET
from memlab.plan import Plan
from memlab.run import Run
from memlab.trace import CATEGORIES, Breakdown

RIGHT: dict[str, Any] = {
    "01-a": "activations",
    "01-b": 55_034_944,
    "01-d": {"sgd"},
    "02-a": 8,
    "02-b": lambda sums, counts: sum(sums) / sum(counts),
    "02-c": lambda n, k: [min(k, n - start) for start in range(0, n, k)],
    "02-d": 18,
    "02-e": ["contrastive loss", "BatchNorm"],
    "02-f": "leave it",
    "04-a": -24,
    "04-b": 512,
    "04-c": "unscale, clip, step",
    "04-d": 16,
    "04-e": {"outputs of matrix products"},
    "05-a": 7 / 6,
    "05-b": "one GELU",
    "05-c": 8,
    "05-d": "the loss is right and the gradients are wrong",
    "07-a": 24,
    "07-b": 13.48,
    "07-c": {"count of all-reduces", "checksums of weights"},
    "07-d": lambda loss_sum, all_tokens, ranks: loss_sum * ranks / all_tokens,
    "07-e": 13.5,
    "09-a": 107.8,
    "09-b": "12",
    "09-c": "activations",
    "09-d": 1_539_072,
}
WRONG: list[tuple[str, Any, str]] = [
    ("01-a", "gradients", "A gradient belongs to a weight"),
    ("01-b", 45_665_592, "That is K = 1"),
    ("01-b", 10**10, "added in place"),
    ("01-d", {"sgd", "mixed precision"}, "the weights stay FP32"),
    ("02-a", 1, "SGD takes the sum as it is"),
    ("02-b", lambda sums, counts: sum(map(truediv, sums, counts)) / len(sums), "A mean of means"),
    ("02-b", lambda sums, counts: sum(sums) / len(sums), "You divided by K"),
    ("02-b", lambda sums, counts: sum(sums) / 10, "by the example's tokens"),
    ("02-c", lambda n, k: [k] * (n // k), "The rest of the epoch is dropped"),
    ("02-c", lambda n, k: [1, *[k] * (n // k)], "steps where i % K == 0"),
    ("02-c", lambda n, k: ..., "in the place of the dots"),
    ("02-b", lambda sums, counts: ..., "in the place of the dots"),
    ("02-b", lambda sums, counts: sums / 0, "Your code raised TypeError"),
    ("02-d", 66, "counts micro-batches"),
    ("02-e", {"BatchNorm"}, "compares samples"),
    ("02-f", "multiply it by 4", "that did not grow"),
    ("04-a", -14, "smallest normal number"),
    ("04-b", 65536, "a smaller one does too"),
    ("04-b", 2.0**7, "still zero in FP16"),
    ("04-b", 600, "a power of two"),
    ("04-c", "clip, unscale, step", "cut to the limit"),
    ("04-d", 20, "twice"),
    ("04-e", {"weights"}, "16-bit copies beside them"),
    ("05-a", 4 / 3, "every block"),
    ("05-a", 1.5, "half of a forward"),
    ("05-b", "one Linear + GELU", "need not keep"),
    ("05-c", 64, "alive at once"),
    ("05-d", "both are right", "draws its masks anew"),
    ("07-a", 3, "no_sync comes too late"),
    ("07-a", 8, "every bucket"),
    ("07-b", 215.6, "exchanges once"),
    ("07-b", 27, "these gradients are BF16"),
    ("07-b", 0.84, "K does not divide them"),
    ("07-c", {"falling loss", "checksums of weights"}, "its loss falls"),
    ("07-c", {"checksums of weights"}, "One is missing"),
    ("07-c", {"peak memory"}, "made at the start"),
    ("07-d", lambda loss_sum, all_tokens, ranks: loss_sum / all_tokens, "comes out too short"),
    ("07-d", lambda loss_sum, all_tokens, ranks: loss_sum / all_tokens / ranks, "do not do it twice"),
    ("07-d", lambda loss_sum, all_tokens, ranks: 2 * loss_sum / all_tokens, "for two ranks only"),
    ("07-d", lambda loss_sum, all_tokens, ranks: loss_sum * ranks, "grows with the window"),
    ("07-d", lambda *given: ..., "in the place of the dots"),
    ("07-e", 107.8, "each rank of DDP holds"),
    ("07-e", 60.6, "ZeRO-1"),
    ("07-e", 16.8, "no buckets"),
    ("09-a", 84, "backward makes gradients too"),
    ("09-a", 100.4, "in GiB"),
    ("09-b", "16", "has none"),
    ("09-c", "weights", "do not grow with the batch"),
    ("09-d", 4 * 128_256, "one copy"),
]


def run_of(total: int, **fields: Any) -> Run:
    """Return a Run whose whole peak is activations."""
    sizes = tuple(total if name == "activations" else 0 for name in CATEGORIES)
    return Run(
        plan=Plan(**{"sequence_length": 64, "steps": 2, **fields}),
        source="measured",
        losses=(1.0, 1.0),
        peak=Breakdown(sizes),
        peak_allocated=total,
        peak_reserved=total,
        fits=True,
        peaks_by_phase={},
        step_peaks=(total, total),
        environment={},
    )


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_are_right(name: str) -> None:
    verdict = check(name, RIGHT[name])

    assert verdict.state == "right", verdict
    assert repr(verdict).startswith(f"{name}: Right. ")


@pytest.mark.parametrize(("name", "answer", "shown"), WRONG)
def test_a_wrong_answer_is_told_what_it_shows(name: str, answer: Any, shown: str) -> None:
    verdict = check(name, answer)

    assert verdict.state == "wrong"
    assert shown.lower() in repr(verdict).lower()


@pytest.mark.parametrize("name", questions())
def test_no_answer_is_no_wrong_answer(name: str) -> None:
    assert repr(check(name, None)) == (
        f"{name}: Not answered yet. Put your answer in the place of None and run the cell again."
    )


def test_nothing_said_to_a_wrong_answer_holds_the_right_one() -> None:
    for name, question in questions().items():
        said = [question.hint, *(message for _, message in question.misconceptions)]
        right = RIGHT.get(name)
        if isinstance(right, (str, int)):
            texts = {str(right), f"{right:,}" if isinstance(right, int) else right}
            words = [text.replace(".", " ").replace(",", " ").split() for text in said]
            assert not [text for text, list_ in zip(said, words, strict=True) if texts & {text, *list_}], name


def test_an_answer_of_another_kind_is_told_which_is_wanted() -> None:
    assert "A number is wanted; 'eight' is none." in repr(check("02-a", "eight"))
    assert "Choose one of 'leave it'" in repr(check("02-f", 4))
    assert "A set of some of 'BatchNorm'" in repr(check("02-e", "BatchNorm"))
    assert "A function is wanted; 3 cannot be called." in repr(check("02-c", 3))
    assert "Hand in the Run that memlab.measure(plan) returns, not 3." in repr(check("01-e", 3))
    assert "Hand in two Runs" in repr(check("01-c", [1, 2]))


def test_markup_in_an_answer_is_escaped() -> None:
    page = check("01-a", "<img src=x>")._repr_html_()

    assert "<img" not in page and "&lt;img" in page


def test_a_question_that_is_none_is_named() -> None:
    with pytest.raises(KeyError, match="no question is named '09-z'; there are 01-a, "):
        check("09-z", 1)


def test_a_7b_that_fits_24_gb_is_right_and_the_others_are_told_what_they_lack() -> None:
    fields = {"model": "llama-7b", "sequence_length": 2048, "precision": "bf16-true", "lora_rank": 4}
    on_card = {"environment": {"device": "card:rtx-4090"}, "source": "predicted"}

    def said(fits: bool = False, **changes: Any) -> str:
        return repr(check("09-e", replace(run_of(1, **{**fields, **changes}), fits=fits, **on_card)))

    assert "Right." in said(fits=True, activation_checkpointing="full")
    assert "other work" in said(fits=True, model="gpt-tiny")
    assert "All weights train" in said(lora_rank=0)
    assert "frozen weights are FP32" in said(precision="fp32")
    assert "What recomputes them?" in said()


def test_a_plan_over_the_budget_is_told_why() -> None:
    within = run_of(BUDGET, micro_batch_size=2, gradient_accumulation_steps=8)

    assert check("01-e", within).state == "right"
    assert "is not 16" in repr(check("01-e", run_of(BUDGET)))
    assert "Take two" in repr(check("01-e", run_of(BUDGET, micro_batch_size=16, steps=1)))
    assert "That is other work" in repr(check("01-e", run_of(BUDGET, micro_batch_size=16, optimizer="sgd")))
    assert "fewer samples through at once" in repr(check("01-e", run_of(BUDGET + 1, micro_batch_size=16)))


def test_two_runs_are_compared_on_one_plan() -> None:
    fp32, bf16 = run_of(100), run_of(120, precision="bf16-mixed")

    assert check("01-c", (fp32, bf16)).state == "right"
    assert "Compare like with like" in repr(check("01-c", (bf16, fp32)))
    assert "Equal to the byte" in repr(check("01-c", (fp32, replace(bf16, peak=fp32.peak))))


def test_the_cheapest_policy_that_fits_is_asked_for() -> None:
    assert check("05-e", run_of(60_000_000, activation_checkpointing="every-2")).state == "right"
    assert "fits with less work" in repr(check("05-e", run_of(50_000_000, activation_checkpointing="full")))
    assert "That is other work" in repr(check("05-e", run_of(50_000_000, micro_batch_size=4)))


def test_the_first_guess_is_kept() -> None:
    _KEPT.clear()

    empty = predict("peak", None, "MiB")
    first = predict("peak", 40, "MiB")
    second = predict("peak", 50, "MiB")

    assert repr(empty).startswith("peak: write your guess in the place of None first.")
    assert repr(first) == "peak: you guess 40 MiB. It is kept; now measure."
    assert repr(second) == repr(first)
    assert repr(second.against(60)) == "peak: 60 MiB; you guessed 40: it is 1.5 x your guess."
    assert repr(empty.against(60)) == "peak: 60 MiB; you made no guess."


@pytest.mark.parametrize("value", ["forty", True, float("nan")])
def test_a_guess_is_a_number(value: Any) -> None:
    with pytest.raises(ValueError, match=r"must be a number of MiB, or None for no guess yet\."):
        predict("other", value, "MiB")
