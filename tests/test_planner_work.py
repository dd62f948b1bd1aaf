"""The planner's count of work, against formulas written down by hand."""

from collections.abc import Callable

import pytest

from memlab.catalog import MODELS
from memlab.memory.cards import card
from memlab.plan import Plan
from memlab.planner.work import SIZES, _counted, work_of

A100 = card("a100-80gb")
SEQ, WIDTH, LAYERS, WORDS = 16, 192, 6, 256
"""gpt-tiny's shapes, with a short text."""
BLOCKS = LAYERS * (2 * SEQ * 12 * WIDTH**2 + 4 * SEQ**2 * WIDTH)
"""Forward of the blocks: four matrices (12 d^2 weights) and two attention products, two operations each."""
HEAD = 2 * SEQ * WIDTH * WORDS


def flops(checkpointing: str, **fields: object) -> float:
    """Return the work of one sample of gpt-tiny."""
    plan = Plan(model="gpt-tiny", sequence_length=SEQ, activation_checkpointing=checkpointing, **fields)
    return work_of(plan, A100).flops(1, 1)


@pytest.fixture(scope="module")
def work() -> Callable[[str], float]:
    """Return the counts, each made once."""
    counts = {name: flops(name) for name in ("none", "selective", "full")}
    return counts.__getitem__


def test_work_is_three_forwards_and_attentions_scores_again(work: Callable[[str], float]) -> None:
    again = LAYERS * 2 * SEQ**2 * WIDTH  # backward makes the scores once more: five products, not four

    assert work("none") == 3 * (BLOCKS + HEAD) + again


def test_recomputing_blocks_repeats_their_forward_up_to_the_last_matrix(work: Callable[[str], float]) -> None:
    last_matrix = LAYERS * 2 * SEQ * 4 * WIDTH**2  # no one saved its result, so recomputation stops before

    assert work("full") - work("none") == BLOCKS - last_matrix


def test_selective_recomputation_repeats_no_matrix_product(work: Callable[[str], float]) -> None:
    assert work("selective") == work("none")


@pytest.mark.parametrize(
    "fields",
    [
        {"foreach": True, "clip_norm": 1.0},
        {"precision": "bf16-mixed", "activation_checkpointing": "full", "foreach": False},
        {"lora_rank": 2, "activation_checkpointing": "selective", "dropout": 0.1},
    ],
    ids=str,
)
def test_what_two_and_three_blocks_do_tells_what_all_do(fields: dict) -> None:
    plan = Plan(model="bert-base", sequence_length=16, micro_batch_size=SIZES[0], **fields)
    work = work_of(plan, A100).lines

    whole = _counted(plan, A100.compute_capability, None, windows=(2, 2))

    for part, lines in work.items():
        assert sum(it.times * (it.flops[0] + it.flops[1] * SIZES[0]) for it in lines) == sum(
            it.flops for it in whole[part]
        )
        assert sum(it.times * (it.moved_bytes[0] + it.moved_bytes[1] * SIZES[0]) for it in lines) == sum(
            it.moved_bytes for it in whole[part]
        )


def update_bytes(**fields: object) -> float:
    """Return what the update of an mlp reads and writes."""
    return sum(
        line.times * line.moved_bytes[0]
        for line in work_of(Plan(model="mlp", **fields), A100).lines["update"]
    )


def test_adamw_over_lists_moves_84_bytes_a_weight() -> None:
    # Eight kernels over FP32 lists: 8 + 12 + 8 + 16 + 8 + 8 + 8 + 16.
    assert update_bytes(foreach=True) == 84 * MODELS["mlp"].parameters


def test_fused_adamw_moves_each_list_once_in_and_once_out() -> None:
    # Weights, gradients (which it may unscale) and both moments; the step counters are small.
    moved = update_bytes(fused=True)

    assert 32 * MODELS["mlp"].parameters <= moved < 32.1 * MODELS["mlp"].parameters


def test_sgd_reads_weights_and_gradients_and_writes_weights() -> None:
    assert update_bytes(optimizer="sgd", foreach=True) == 12 * MODELS["mlp"].parameters
