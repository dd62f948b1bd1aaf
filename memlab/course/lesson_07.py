"""Questions of lesson 07, several ranks and what they exchange."""

from memlab.course.questions import Question, equal, gives, near

PARAMETERS = 6_738_415_616
"""Of LLaMA-7B."""
SIGNS = ("falling loss", "peak memory", "count of all-reduces", "checksums of weights")
FIRST, SECOND, THIRD = (8.0, 10, 2), (18.0, 10, 2), (30.0, 20, 4)
"""Sum of losses on this rank, tokens of all, ranks."""

QUESTIONS = {
    "07-a": Question(
        kind="number",
        right=equal(24),
        why="8 micro-steps, each with all 3 buckets: around backward alone, no_sync does nothing.",
        misconceptions=(
            (
                equal(3),
                "That is the right loop; here no_sync comes too late, and every micro-step exchanges.",
            ),
            (equal(8), "Each micro-step that exchanges sends every bucket."),
            (equal(1), "Not one exchange a window: section 1 counted, and a bucket is one call."),
            (equal(21), "The last micro-step exchanges too."),
        ),
        hint="Micro-steps that exchange, times buckets.",
    ),
    "07-b": Question(
        kind="number",
        right=near(2 * PARAMETERS / 1e9),
        why="2 B a weight, once a window, whatever K is.",
        misconceptions=(
            (near(32 * PARAMETERS / 1e9), "That is every micro-step; the right loop exchanges once."),
            (near(4 * PARAMETERS / 1e9), "That is FP32; these gradients are BF16."),
            (near(2 * PARAMETERS / 2**30), "That is in GiB; GB are asked for, of 1e9 bytes."),
            (near(PARAMETERS / 1e9), "That is one byte a weight."),
            (
                near(2 * PARAMETERS / 16 / 1e9),
                "Each exchange hands over all gradients; K does not divide them.",
            ),
        ),
        hint="Bytes of all gradients, times the exchanges in one window.",
    ),
    "07-c": Question(
        kind="choices",
        choices=SIGNS,
        right=equal({"count of all-reduces", "checksums of weights"}),
        why="The count is 0, and the sums differ from the first step on.",
        misconceptions=(
            (
                lambda some: "falling loss" in some,
                "A rank that trains alone learns too, from its share of the data: its loss falls.",
            ),
            (
                lambda some: "peak memory" in some,
                "Buckets are made at the start, whether they are sent or not.",
            ),
        ),
        hint="One is missing: section 1 counted something, section 3 compared something.",
    ),
    "07-d": Question(
        kind="function",
        right=gives((FIRST, 1.6), (SECOND, 3.6), (THIRD, 6.0)),
        why="Their average over the ranks is 2.6 for the example: every token weighs the same.",
        misconceptions=(
            (lambda f: f(*FIRST) is ..., "Put your formula in the place of the dots."),
            (
                gives((FIRST, 0.8), (SECOND, 1.8), (THIRD, 1.5)),
                "DDP divides by the number of ranks afterwards: the gradient comes out too short.",
            ),
            (
                gives((FIRST, 0.4), (SECOND, 0.9), (THIRD, 0.375)),
                "DDP divides by the ranks already: undo that, do not do it twice.",
            ),
            (
                gives((FIRST, 1.6), (SECOND, 3.6), (THIRD, 3.0)),
                "That holds for two ranks only; another run has another number.",
            ),
            (
                gives((FIRST, 16.0), (SECOND, 36.0), (THIRD, 120.0)),
                "Divide by the tokens of all ranks, else the gradient grows with the window.",
            ),
        ),
        hint="Try it by hand: rank 0 has the sum 8, rank 1 the sum 18, and there are 10 tokens on 2 ranks.",
    ),
    "07-e": Question(
        kind="number",
        right=near(2 * PARAMETERS / 1e9),
        why="16 B a weight, divided by 8 ranks; activations and gathered weights come on top.",
        misconceptions=(
            (near(16 * PARAMETERS / 1e9), "That is what each rank of DDP holds, without its buckets."),
            (near(9 * PARAMETERS / 1e9), "That is ZeRO-1, which divides the moments alone."),
            (near(6 * PARAMETERS / 1e9), "That leaves the weights whole; FSDP2 divides them too."),
            (near(2.5 * PARAMETERS / 1e9), "FSDP2 has no buckets beside the gradients."),
            (near(2 * PARAMETERS / 2**30), "That is in GiB; GB are asked for, of 1e9 bytes."),
        ),
        hint="4 B of weight, 4 of gradient, 8 of moments: which are divided by 8?",
    ),
}
