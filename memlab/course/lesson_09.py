"""Questions of lesson 09, fitting a 7B model."""

from memlab.course.questions import Question, equal, near
from memlab.run import Run

PARAMETERS = 6_738_415_616
VOCABULARY = 128_256
"""Of llama-3-8b."""
POLICIES = ("8", "12", "16", "18", "20")
TERMS = ("weights", "gradients", "optimizer state", "activations")
CARD = "card:rtx-4090"


def right_work(run: Run) -> bool:
    """Tell whether the run trains a 7B with texts of 2,048 tokens on the card that exercise 09-e names."""
    return (run.plan.model, run.plan.sequence_length) == ("llama-7b", 2048) and run.environment.get(
        "device"
    ) == CARD


QUESTIONS = {
    "09-a": Question(
        kind="number",
        right=near(16 * PARAMETERS / 1e9),
        why="4 B of weight, 4 of gradient and 8 of moments: 112 GB for a round 7e9, before one activation.",
        misconceptions=(
            (
                near(12 * PARAMETERS / 1e9, 0.04),
                "28 + 56 is weights and moments; backward makes gradients too.",
            ),
            (near(16 * PARAMETERS / 2**30), "That is in GiB; the claim counts in GB, of 1e9 bytes."),
            (near(8 * PARAMETERS / 1e9), "That is the moments alone, or all in BF16."),
            (near(4 * PARAMETERS / 1e9, 0.04), "That is the weights alone."),
        ),
        hint="AdamW keeps two numbers for each weight. Add weight and gradient; FP32 takes 4 B each.",
    ),
    "09-b": Question(
        kind="choice",
        choices=POLICIES,
        right=equal("12"),
        why="2 + 2 + 8: half-precision weights and gradients, FP32 moments, and no FP32 copy of the weights.",
        misconceptions=(
            (equal("16"), "A master copy would add 4 B a parameter, 28 GB, and the claim's sum has none."),
            (equal("8"), "56 GB for 7e9 weights is 8 B each for two moments: in which precision are they?"),
            (equal("18"), "14 GB of gradients is 2 B each."),
            (equal("20"), "14 GB of gradients is 2 B each, kept once."),
        ),
        hint="Divide each term by 7e9 parameters.",
    ),
    "09-c": Question(
        kind="choice",
        choices=TERMS,
        right=equal("activations"),
        why="The frozen weights stay, gradients and state are all but gone; what grows with the batch is left.",
        misconceptions=(
            (equal("weights"), "They are the largest term, but they do not grow with the batch."),
            (equal("gradients"), "Only adapters have gradients now: look at the row."),
            (equal("optimizer state"), "Only adapters have moments now: look at the row."),
        ),
        hint="Which row would double with the micro-batch?",
    ),
    "09-d": Question(
        kind="number",
        right=equal(12 * VOCABULARY),
        why="Three FP32 numbers for each of 128,256 words: 1.5 MB for one token.",
        misconceptions=(
            (equal(4 * VOCABULARY), "That is one copy. How many are alive at once, early in backward?"),
            (
                equal(2 * VOCABULARY),
                "That is the logits as the head makes them, in BF16; the loss copies them.",
            ),
            (equal(8 * VOCABULARY), "That is forward's two; backward holds one more for a moment."),
            (equal(12), "That is for one word of the vocabulary; a token has a logit for each."),
        ),
        hint="Divide what the report says by 2,048 tokens.",
    ),
    "09-e": Question(
        kind="run",
        right=lambda run: right_work(run) and run.fits,
        why="Low-rank adapters with checkpointing: the claim holds for these, not for full fine-tuning.",
        misconceptions=(
            (
                lambda run: not right_work(run),
                "That is other work: predict llama-7b with its 2,048 tokens for card='rtx-4090'.",
            ),
            (
                lambda run: not run.plan.lora_rank,
                "All weights train: their gradients and moments alone exceed the card. Freeze them.",
            ),
            (
                lambda run: run.plan.precision != "bf16-true",
                "The frozen weights are FP32: 25 GiB of 24. Which precision halves them?",
            ),
            (
                lambda run: run.plan.activation_checkpointing != "full",
                "Weights and adapters fit; the activations on top do not. What recomputes them?",
            ),
        ),
        hint="Which rows of the table are left, and which setting shrinks each?",
    ),
}
