"""Questions of lesson 02, the same gradient with less memory."""

from collections.abc import Callable
from typing import Any

from memlab.course.questions import Question, equal, gives

COUPLING = ("BatchNorm", "GroupNorm", "LayerNorm", "RMSNorm", "dropout", "contrastive loss")
RATES = ("leave it", "multiply it by 4", "multiply it by 2", "divide it by 4")
PAIR, TRIPLE = ([8.0, 18.0], [8, 2]), ([3.0, 5.0, 40.0], [1, 5, 10])
"""Sums of losses and counts of tokens, 10 and 16 in all: means 2.6 and 3.0."""
EPOCHS = {(7, 4): [4, 3], (8, 4): [4, 4], (3, 4): [3], (5, 1): [1] * 5, (9, 2): [2, 2, 2, 2, 1]}


def cuts(rule: Callable[[int, int], list[int]]) -> Callable[[Any], bool]:
    """Return a test for functions that cut every epoch as `rule` does."""

    def test(function: Callable[[int, int], Any]) -> bool:
        found = [(function(*epoch), rule(*epoch)) for epoch in EPOCHS]
        return all(answer is not ... and list(answer) == wanted for answer, wanted in found)

    return test


QUESTIONS = {
    "02-a": Question(
        kind="number",
        right=equal(8),
        why="Eight gradients were added, and only the weight decay was added once.",
        misconceptions=(
            (equal(1), "AdamW would hide the factor; SGD takes the sum as it is."),
            (equal(64), "Each micro-batch's gradient is already a mean over its own samples."),
            (equal(1 / 8), "The sum is longer than the mean, not shorter."),
        ),
        hint="Write the sum of K gradients beside their mean.",
    ),
    "02-b": Question(
        kind="function",
        right=gives((PAIR, 2.6), (TRIPLE, 3.0)),
        why="Every token weighs the same, however the window was cut.",
        misconceptions=(
            (lambda f: f([8.0, 18.0], [8, 2]) is ..., "Put your formula in the place of the dots."),
            (
                gives((PAIR, 5.0), (TRIPLE, 8 / 3)),
                "A mean of means: the tokens of a short micro-batch weigh more than the others.",
            ),
            (gives((PAIR, 13.0), (TRIPLE, 16.0)), "You divided by K; how many tokens counted is not in it."),
            (
                gives((PAIR, 2.6), (TRIPLE, 4.8)),
                "That divides every window by the example's tokens; another window holds another number.",
            ),
            (
                gives((PAIR, 26.0), (TRIPLE, 48.0)),
                "A sum grows with the window; the mean per token is wanted.",
            ),
        ),
        hint="Try it by hand: 8 tokens of loss 1 and 2 of loss 9 are 10 tokens.",
    ),
    "02-c": Question(
        kind="function",
        right=cuts(lambda n, k: EPOCHS[n, k]),
        why="Every micro-batch is in one window, and none leaks into the next epoch.",
        misconceptions=(
            (lambda f: f(7, 4) is ..., "Put your list in the place of the dots."),
            (
                cuts(lambda n, k: [k] * (n // k)),
                "The rest of the epoch is dropped; with 3 micro-batches and K = 4, all.",
            ),
            (
                cuts(lambda n, k: [k] * -(-n // k)),
                "The last window is said to hold more than is left in the epoch.",
            ),
            (
                lambda f: list(f(7, 4))[:1] == [1],
                "The first window holds one micro-batch: that loop steps where i % K == 0.",
            ),
            (lambda f: sum(f(7, 4)) != 7, "The windows of an epoch of 7 must hold 7 micro-batches together."),
        ),
        hint="Try windows(3, 4), windows(8, 4) and windows(5, 1) as well.",
    ),
    "02-d": Question(
        kind="number",
        right=equal(18),
        why="One call for each update, the short window of each epoch included.",
        misconceptions=(
            (equal(66), "That counts micro-batches; the schedule counts updates."),
            (equal(15), "The short window at the end of an epoch is an update too."),
            (equal(16.5), "A window does not reach over the end of an epoch."),
            (equal(17), "The windows start anew in each epoch; the rest does not carry over."),
            (equal(6), "That is one epoch."),
        ),
        hint="Updates in one epoch, times three.",
    ),
    "02-e": Question(
        kind="choices",
        choices=COUPLING,
        right=equal({"BatchNorm", "contrastive loss"}),
        why="Both let one sample's loss depend on the others beside it.",
        misconceptions=(
            (
                lambda some: some & {"GroupNorm", "LayerNorm", "RMSNorm"},
                "One of your norms works within a single sample; its neighbours do not matter.",
            ),
            (
                lambda some: "dropout" in some,
                "Dropout draws other masks, but from the same distribution: chance, not another function.",
            ),
            (lambda some: "BatchNorm" not in some, "Section 6 measured one that is missing."),
        ),
        hint="One is missing: which loss compares samples with each other?",
    ),
    "02-f": Question(
        kind="choice",
        choices=RATES,
        right=equal("leave it"),
        why="The global batch is still 32, so the gradient and its noise are what they were.",
        misconceptions=(
            (equal("multiply it by 4"), "Linear scaling follows the global batch, and that did not grow."),
            (
                equal("multiply it by 2"),
                "Square-root scaling follows the global batch, and that did not grow.",
            ),
            (equal("divide it by 4"), "The division by the window's items is in the loss already."),
        ),
        hint="What does the optimizer see that it did not see before?",
    ),
}
