"""Questions of lesson 05, activation checkpointing."""

from memlab.course.questions import Question, above, equal, near
from memlab.run import Run

SEGMENTS = ("one GELU", "one Linear + GELU", "four times Linear + GELU")
OUTCOMES = (
    "the loss is wrong",
    "the loss is right and the gradients are wrong",
    "both are right",
    "both are wrong",
)
POLICIES = ("none", "selective", "every-2", "every-3", "full")
WITHIN = 0.85
"""Share of the peak without checkpointing that exercise 05-e asks for."""
PEAK_WITHOUT = 73_996_860
"""gpt-tiny, 64 tokens, micro-batch 8, AdamW, FP32, on the CPU."""


def right_work(run: Run) -> bool:
    """Tell whether the run did what exercise 05-e asks, whatever its peak."""
    plan = run.plan
    wanted = ("gpt-tiny", 8, 1, 64, "fp32", "adamw", 0)
    work = (plan.model, plan.micro_batch_size, plan.gradient_accumulation_steps, plan.sequence_length)
    return (*work, plan.precision, plan.optimizer, plan.lora_rank) == wanted and plan.steps >= 2


def fits(run: Run) -> bool:
    """Tell whether the peak is within what exercise 05-e asks."""
    return run.peak.total <= WITHIN * PEAK_WITHOUT


QUESTIONS = {
    "05-a": Question(
        kind="number",
        right=near(7 / 6),
        why="Half a forward more makes 3.5 products of 3: backward is two for each of forward's one.",
        misconceptions=(
            (near(4 / 3), "That is the price of recomputing every block."),
            (near(1.5), "The extra is half of a forward; compare it with forward and backward together."),
            (near(1.25), "Backward costs twice what forward costs, not as much as forward."),
            (near(1 / 6, 0.03), "That is the extra; the ratio of the whole is asked."),
            (near(2 / 3), "Recomputing adds work and takes none away."),
        ),
        hint="Let forward cost 1. What does backward cost? Both gradients of a product are products.",
    ),
    "05-b": Question(
        kind="choice",
        choices=SEGMENTS,
        right=equal("one GELU"),
        why="The segment keeps its input, and its input is all that a GELU keeps anyway.",
        misconceptions=(
            (
                equal("one Linear + GELU"),
                "Between the Linear and the GELU lies a tensor that the segment need not keep.",
            ),
            (
                equal("four times Linear + GELU"),
                "Of eight tensors it keeps one. It saves most of the three, until they are recomputed.",
            ),
        ),
        hint="Count the tensors that each keeps with and without checkpointing.",
    ),
    "05-c": Question(
        kind="number",
        right=equal(8),
        why="64 / 8 inputs and 8 blocks at work: the square root of the number of blocks.",
        misconceptions=(
            (equal(1), "Then 64 inputs are kept: many boundaries, little work."),
            (equal(64), "Then everything is recomputed at once, and all of it is alive at once."),
            (equal(32), "You made one of the two terms small; their sum is asked."),
            (above(64), "There are 64 blocks."),
        ),
        hint="Tabulate 64 / n + n over the powers of two.",
    ),
    "05-d": Question(
        kind="choice",
        choices=OUTCOMES,
        right=equal("the loss is right and the gradients are wrong"),
        why="The loss comes from the first forward; the second one, for the gradients, drops other activations.",
        misconceptions=(
            (equal("both are right"), "The second forward draws its masks anew; compare the gradients."),
            (equal("the loss is wrong"), "The loss is computed before anything is recomputed."),
            (equal("both are wrong"), "The loss is computed before anything is recomputed."),
        ),
        hint="Which of the two forwards gives the loss, which the gradients?",
    ),
    "05-e": Question(
        kind="run",
        right=lambda run: right_work(run) and fits(run) and run.plan.activation_checkpointing == "every-2",
        why="It fits, and only every second block is computed twice.",
        misconceptions=(
            (
                lambda run: not right_work(run),
                "That is other work: gpt-tiny, micro-batch 8, K = 1, 64 tokens, fp32, AdamW, two steps or more.",
            ),
            (
                lambda run: run.plan.activation_checkpointing == "full",
                "It fits, but every block is computed twice. One policy fits with less work.",
            ),
            (
                lambda run: run.plan.activation_checkpointing == "selective",
                "Selective recomputes cheap operations only, and keeps too much for this budget.",
            ),
            (lambda run: not fits(run), "It does not fit: more blocks must be recomputed."),
        ),
        hint="Try the policies from the cheapest on.",
    ),
}
