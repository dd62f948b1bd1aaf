"""Questions of lesson 01, where the memory goes."""

from dataclasses import replace

from memlab.course.questions import Question, above, below, equal
from memlab.run import Run
from memlab.units import MiB

ROWS = ("parameters", "gradients", "optimizer state", "activations")
TECHNIQUES = ("accumulation", "mixed precision", "checkpointing", "sgd")
PEAK_OF_TWO = 55_034_944
"""gpt-tiny, 64 tokens, micro-batch 2, K = 2, AdamW, FP32, on the CPU."""
PEAK_OF_ONE = 45_665_592
"""The same with K = 1."""
BUDGET = 56 * MiB


def comparable(runs: tuple[Run, Run]) -> bool:
    """Tell whether the runs are FP32 and bf16-mixed runs of otherwise one plan."""
    fp32, bf16 = runs
    return replace(fp32.plan, precision="bf16-mixed") == bf16.plan and fp32.plan.precision == "fp32"


def right_work(run: Run) -> bool:
    """Tell whether the run did what exercise 01-e asks, whatever its peak."""
    plan = run.plan
    return (
        (plan.model, plan.optimizer, plan.sequence_length, plan.lora_rank) == ("gpt-tiny", "adamw", 64, 0)
        and plan.global_batch_size == 16
        and plan.steps >= 2
    )


QUESTIONS = {
    "01-a": Question(
        kind="choice",
        choices=ROWS,
        right=equal("activations"),
        why="What forward keeps, it keeps for each sample that is under way.",
        misconceptions=(
            (
                equal("gradients"),
                "A gradient belongs to a weight: the samples' gradients are added into one number.",
            ),
            (equal("parameters"), "One set of weights serves all samples."),
            (
                equal("optimizer state"),
                "The optimizer remembers something for each weight, and never sees a sample.",
            ),
        ),
        hint="Ask of each row: one number for each weight, or one for each sample?",
    ),
    "01-b": Question(
        kind="number",
        right=equal(PEAK_OF_TWO),
        why="Each micro-step starts from the same bytes, so the peak is the same for every K from 2 on.",
        misconceptions=(
            (equal(PEAK_OF_ONE), "That is K = 1, where no gradients are alive during a forward pass."),
            (
                above(PEAK_OF_TWO),
                "You let something grow with K. The gradients are added in place, into one set.",
            ),
            (
                below(PEAK_OF_ONE),
                "You divided something by K. At a given micro-batch size K makes nothing smaller.",
            ),
        ),
        hint="It is one of the numbers that you measured, to the byte.",
    ),
    "01-c": Question(
        kind="runs",
        right=lambda runs: comparable(runs) and runs[1].peak.total > runs[0].peak.total,
        why="The copies follow the weights, the saving follows the samples; here the weights win.",
        misconceptions=(
            (
                lambda runs: not comparable(runs),
                "Compare like with like: the first run in fp32, the second in bf16-mixed, all else equal.",
            ),
            (
                lambda runs: runs[0].peak.total == runs[1].peak.total,
                "Equal to the byte: both peaks lie in the optimizer's step, when the copies are gone.",
            ),
            (
                lambda runs: runs[0].peak["activations"] > runs[0].peak["parameters"],
                "Here the activations are larger than the weights, so halving them pays.",
            ),
        ),
        hint="Autocast still saves memory here: fewer or shorter samples keep fewer activations.",
    ),
    "01-d": Question(
        kind="choices",
        choices=TECHNIQUES,
        right=equal({"sgd"}),
        why="Without momentum SGD remembers nothing. The state follows the optimizer and the weights alone.",
        misconceptions=(
            (
                lambda some: "mixed precision" in some,
                "Under autocast the weights stay FP32, and so does what the optimizer keeps for them.",
            ),
            (
                lambda some: "accumulation" in some,
                "Accumulation makes steps rarer; what the optimizer keeps between them stays.",
            ),
            (
                lambda some: "checkpointing" in some,
                "Checkpointing drops activations; the optimizer has nothing to do with them.",
            ),
        ),
        hint="One of them is an optimizer with less to remember.",
    ),
    "01-e": Question(
        kind="run",
        right=lambda run: right_work(run) and run.peak.total <= BUDGET,
        why="It fits. Plans that only cut the batch smaller cost no extra work; checkpointing computes forward twice.",
        misconceptions=(
            (
                lambda run: run.plan.global_batch_size != 16,
                "The global batch, micro-batch size x K, is not 16.",
            ),
            (
                lambda run: run.plan.steps < 2,
                "One step does not show the whole peak: AdamW makes its state at the end of it. Take two.",
            ),
            (
                lambda run: not right_work(run),
                "That is other work: gpt-tiny with AdamW and 64 tokens a sample, all weights trained.",
            ),
            (
                lambda run: run.plan.activation_checkpointing == "none",
                "Over the budget. Let fewer samples through at once, or keep fewer of their activations.",
            ),
        ),
        hint="Over the budget. Checkpointing alone still works on all samples at once: which rows does that fill?",
    ),
}
