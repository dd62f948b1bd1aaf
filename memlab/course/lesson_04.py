"""Questions of lesson 04, mixed precision."""

from itertools import permutations
from math import frexp

from memlab.course.questions import Question, above, below, equal, near

HALVED = ("weights", "weight gradients", "optimizer state", "outputs of matrix products", "loss")
ORDERS = tuple(", ".join(order) for order in permutations(("clip", "step", "unscale")))

QUESTIONS = {
    "04-a": Question(
        kind="number",
        right=equal(-24),
        why="Ten bits of mantissa below the smallest normal number, 2^-14: 2^-24 is the last step above zero.",
        misconceptions=(
            (
                equal(-14),
                "That is the smallest normal number; subnormal numbers go on below it with fewer bits.",
            ),
            (
                equal(-10),
                "That is the distance between 1 and the next larger number, not the distance to zero.",
            ),
            (equal(-25), "Half of the smallest number rounds to zero."),
            (above(0), "The exponent of a number below one is negative."),
        ),
        hint="Halve a number in FP16 until it becomes zero, and count.",
    ),
    "04-b": Question(
        kind="number",
        right=equal(512),
        why="512 x 1e-10 is above half of the smallest FP16 number, so it rounds up to it; 256 x 1e-10 is not.",
        misconceptions=(
            (
                equal(1024),
                "It survives with less: what lies above half of the smallest number rounds up to it.",
            ),
            (equal(65536), "The usual first scale does it, with room to spare; a smaller one does too."),
            (lambda scale: scale <= 0 or frexp(scale)[0] != 0.5, "A power of two is asked for."),
            (below(512), "It is still zero in FP16 then. Try it."),
        ),
        hint="It survives, but a smaller power of two does as well.",
    ),
    "04-c": Question(
        kind="choice",
        choices=ORDERS,
        right=equal("unscale, clip, step"),
        why="The limit is meant for the true gradient, and the optimizer must see it clipped.",
        misconceptions=(
            (
                lambda order: order.index("clip") < order.index("unscale"),
                "Clipped first, the scaled gradient is cut to the limit, and unscaling then makes it tiny.",
            ),
            (
                lambda order: order.index("step") < order.index("clip"),
                "After the step it is too late to clip.",
            ),
        ),
        hint="Who needs which gradient?",
    ),
    "04-d": Question(
        kind="number",
        right=near(16),
        why="2 for the weight, 2 for its gradient, 4 for the master copy, 8 for AdamW's two averages of it.",
        misconceptions=(
            (near(8), "That is all in BF16, without a master copy."),
            (near(12), "AdamW's averages follow the weights that it updates: the FP32 copy."),
            (near(14), "The BF16 gradient is stored as well."),
            (near(18), "That needs gradients in FP32."),
            (near(20), "That keeps the gradients twice, in BF16 and in FP32."),
        ),
        hint="Write a line for each: weight, gradient, master copy, first average, second average.",
    ),
    "04-e": Question(
        kind="choices",
        choices=HALVED,
        right=equal({"outputs of matrix products"}),
        why="Autocast changes what some operations compute in; what is stored for the weights stays FP32.",
        misconceptions=(
            (
                lambda some: "weights" in some,
                "The weights stay FP32; autocast makes 16-bit copies beside them.",
            ),
            (
                lambda some: "weight gradients" in some,
                "A gradient gets its weight's type; the 16-bit one inside backward is cast on the way.",
            ),
            (
                lambda some: "optimizer state" in some,
                "The optimizer never runs under autocast, and follows the weights' type.",
            ),
            (
                lambda some: "loss" in some,
                "A loss adds many small numbers: autocast runs losses in FP32.",
            ),
        ),
        hint="One is missing: which operations does autocast exist for?",
    ),
}
