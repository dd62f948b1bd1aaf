"""The planner: what it proposes fits, all that fits is proposed, and equal questions get equal answers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.catalog import MODELS
from memlab.engine.predict import predict
from memlab.memory.cards import Card, card
from memlab.plan import Plan, PlanError
from memlab.planner import NothingFits, Proposal, feasible_plans
from memlab.planner.fitting import states_bytes
from memlab.planner.search import largest_that, last_in_a_row
from memlab.units import MiB

CONTEXT = 256 * MiB
A100 = card("a100-80gb")
ONE = {"precision": "fp32", "activation_checkpointing": "none", "fused": True}
"""Leaves the micro-batch size open alone."""


def card_with(left: int) -> Card:
    """Return an A100 that has `left` MiB beside the CUDA context."""
    return replace(A100, name="tiny-card", title="Tiny card", memory_bytes=CONTEXT + left * MiB)


def brute_force(target: Card, global_batch_size: int) -> list[int]:
    """Return the micro-batch sizes of an mlp that fit, each plan predicted as it is."""
    sizes = [size for size in range(1, global_batch_size + 1) if global_batch_size % size == 0]
    plans = [
        Plan.for_global_batch(global_batch_size, micro_batch_size=size, model="mlp", **ONE) for size in sizes
    ]
    return [plan.micro_batch_size for plan in plans if predict(plan, card=target).fits]


@given(count=st.integers(0, 300), holding=st.integers(0, 300))
def test_bisection_finds_what_trying_all_finds(count: int, holding: int) -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number < holding

    found = largest_that(holds, count)

    assert found == max((number for number in range(count) if number < holding), default=None)
    assert len(asked) <= 1 + count.bit_length()


@given(holding=st.sets(st.integers(0, 12)), count=st.integers(0, 12))
def test_going_up_asks_no_more_than_one_that_fails(holding: set[int], count: int) -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number in holding

    found = last_in_a_row(holds, count)

    assert found == max((n for n in range(count) if {*range(n + 1)} <= holding), default=None)
    assert sum(number not in holding for number in asked) <= 1


def test_the_planner_finds_what_trying_every_micro_batch_finds() -> None:
    target = card_with(8)

    found = feasible_plans("mlp", target, 448, **ONE)

    sizes = sorted(it.plan.micro_batch_size for it in found)
    assert sizes == brute_force(target, 448)
    assert [it.plan.micro_batch_size for it in found if it.largest] == [sizes[-1]]
    assert 1 < sizes[-1] < 448, "the card must be neither too large nor too small to prove anything"


def test_the_peak_grows_with_the_micro_batch() -> None:
    found = feasible_plans("mlp", card_with(8), 448, **ONE)

    peaks = [it.peak.total for it in sorted(found, key=lambda it: it.plan.micro_batch_size)]

    assert peaks == sorted(peaks), peaks


def test_a_proposal_tells_what_predicting_its_plan_tells() -> None:
    target = card_with(10)

    for proposal in feasible_plans("mlp", target, 28, **ONE):
        run = predict(proposal.plan, card=target)

        assert (proposal.peak, proposal.peak_reserved) == (run.peak, run.peak_reserved), proposal.plan
        assert proposal.headroom_bytes == 10 * MiB - run.peak_reserved


@pytest.fixture(scope="module")
def proposals() -> list[Proposal]:
    """Return all that fits a tiny card: every precision, checkpointing and update."""
    return feasible_plans("mlp", card_with(10), 64, largest_only=True, micro_batch_size=16)


def test_every_proposal_makes_the_global_batch_and_fits(proposals: list[Proposal]) -> None:
    assert all(it.plan.global_batch_size == 64 and it.headroom_bytes >= 0 for it in proposals)


def test_every_combination_is_there(proposals: list[Proposal]) -> None:
    plans = [it.plan for it in proposals]
    choices = {(plan.precision, plan.activation_checkpointing, bool(plan.fused)) for plan in plans}

    assert len(proposals) == len(choices) == 4 * 3 * 2


def test_ranks_that_ask_alike_agree(proposals: list[Proposal]) -> None:
    again = feasible_plans("mlp", card_with(10), 64, largest_only=True, micro_batch_size=16)

    assert again == proposals


def test_the_fastest_comes_first(proposals: list[Proposal]) -> None:
    speeds = [it.relative_speed for it in proposals]

    assert speeds[0] == 1.0 and speeds == sorted(speeds, reverse=True), speeds
    assert all(0 < it.utilisation < 1 for it in proposals)


def test_recomputation_is_never_faster_on_the_same_micro_batch(proposals: list[Proposal]) -> None:
    speed = {
        (it.plan.precision, it.plan.fused, it.plan.activation_checkpointing): it.relative_speed
        for it in proposals
    }
    for precision, fused, checkpointing in speed:
        assert speed[precision, fused, checkpointing] <= speed[precision, fused, "none"]
        assert speed[precision, fused, "full"] < speed[precision, fused, "none"]


def test_a_larger_micro_batch_is_never_slower() -> None:
    found = sorted(feasible_plans("mlp", A100, 64, **ONE), key=lambda it: it.plan.micro_batch_size)

    speeds = [it.relative_speed for it in found]

    assert speeds == sorted(speeds) and len(speeds) == 7, speeds


def test_micro_batches_are_no_larger_than_the_data() -> None:
    found = feasible_plans("mlp", A100, 4096, largest_only=True, **ONE)

    assert [it.plan.micro_batch_size for it in found] == [1024]  # the digits are 1,797


def test_ddp_buckets_are_one_more_copy_of_the_gradients() -> None:
    alone, with_ddp, as_views = (
        feasible_plans(
            "mlp", A100, 4 * ranks, ranks, micro_batch_size=4, gradient_as_bucket_view=view, **ONE
        )[0]
        for ranks, view in ((1, False), (2, False), (2, True))
    )

    copy = 4 * MODELS["mlp"].parameters
    assert with_ddp.peak["communication_buffers"] == as_views.peak["communication_buffers"] == copy
    assert with_ddp.peak.total - alone.peak.total == copy
    assert alone.peak["communication_buffers"] == 0 and as_views.peak["gradients"] < alone.peak["gradients"]


@pytest.mark.parametrize("data_parallel", ["ddp", "zero1", "fsdp2"])
def test_a_fit_of_several_ranks_is_the_prediction_of_one_of_them(data_parallel: str) -> None:
    several = {"data_parallel": data_parallel, "micro_batch_size": 2}

    best = feasible_plans("gpt-tiny", A100, 24, 4, sequence_length=16, **ONE, **several)[0]

    plan = best.plan
    run = predict(plan, card="a100-80gb")
    assert (plan.data_parallel, plan.world_size, plan.gradient_accumulation_steps) == (data_parallel, 4, 3)
    assert (best.peak, best.peak_reserved) == (run.peak, run.peak_reserved)


def test_what_ranks_divide_makes_a_model_fit_that_fits_no_card_alone() -> None:
    seven = {
        "precision": "fp32",
        "sequence_length": 128,
        "micro_batch_size": 1,
        "activation_checkpointing": "full",
    }

    with pytest.raises(NothingFits, match="nothing fits"):
        feasible_plans("llama-7b", A100, 8, 8, fused=True, **seven)
    found = feasible_plans("llama-7b", A100, 8, 8, fused=True, data_parallel="fsdp2", **seven)

    assert found[0].headroom_bytes > 0


def test_bf16_is_proposed_only_where_the_card_has_it() -> None:
    on_turing = feasible_plans("mlp", "t4", 8, micro_batch_size=8, activation_checkpointing="none")

    assert {it.plan.precision for it in on_turing} == {"fp32", "fp16-mixed"}


def test_where_nothing_fits_the_nearest_is_named_and_what_would_help() -> None:
    with pytest.raises(NothingFits) as caught:
        feasible_plans("mlp", card_with(5), 64, **{**ONE, "micro_batch_size": 64})

    nearest = caught.value.nearest
    assert str(caught.value) == (
        "nothing fits Tiny card: the nearest, micro-batch 64 x K 1 in fp32 with no checkpointing and fused adamw, "
        "needs 6.0 MiB where 5.0 MiB are left of the card, 4.2 MiB of its peak for weights, gradients and optimizer "
        "state; it fits with precision='bf16-true' or card='rtx-4060'."
    )
    assert nearest.headroom_bytes == 5 * MiB - nearest.peak_reserved < 0


def test_what_its_weights_alone_rule_out_is_not_predicted() -> None:
    seen: list[Plan] = []

    with pytest.raises(NothingFits):
        feasible_plans("mlp", card_with(1), 64, progress=lambda done, total, plan: seen.append(plan))

    assert seen == []


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "mlp", "optimizer": "sgd", "momentum": 0.9},
        {"model": "gpt-tiny", "precision": "bf16-mixed"},
        {"model": "gpt-tiny", "precision": "bf16-true", "master_weights": True},
        {"model": "gpt-tiny", "precision": "bf16-true", "lora_rank": 2},
        {"model": "gpt-tiny", "sequence_length": 8},
        {"model": "gpt-tiny", "world_size": 4, "data_parallel": "zero1"},
        {"model": "gpt-tiny", "world_size": 4, "data_parallel": "fsdp2"},
    ],
    ids=str,
)
def test_no_plan_needs_less_than_its_weights_gradients_and_state(fields: dict) -> None:
    plan = Plan(**{"micro_batch_size": 1, "steps": 1, **fields})

    assert states_bytes(plan) <= predict(plan, card=A100).peak_reserved


@pytest.mark.slow
def test_chunks_of_the_loss_are_proposed_where_they_make_it_fit() -> None:
    fields = {"sequence_length": 256, "micro_batch_size": 16, "optimizer": "sgd", "fused": True, "steps": 1}
    whole, chunked = (
        predict(Plan(model="gpt2", loss_chunks=chunks, **fields), card=A100) for chunks in (1, 8)
    )
    between = (whole.peak_reserved + chunked.peak_reserved) // 2 // MiB
    fields |= {"precision": "fp32", "activation_checkpointing": "none"}

    with pytest.raises(NothingFits, match="it fits with .*loss_chunks=8 or"):
        feasible_plans("gpt2", card_with(between), 16, **fields)


WRONG = {
    "custom": (
        {"model": "custom"},
        "model='custom' cannot be planned, for it has no name to build it by; compare predict(plan, card, workload) "
        "for some micro-batch sizes.",
    ),
    "steps": (
        {"gradient_accumulation_steps": 4},
        "gradient_accumulation_steps=4 follows from global_batch_size, micro_batch_size and world_size: leave it out.",
    ),
    "bf16": (
        {"card": "t4", "precision": "bf16-mixed"},
        "precision='bf16-mixed' does not go with Tesla T4 16 GB, which has no BF16 of its own; choose 'fp16-mixed', "
        "leave precision open, or take a card of compute capability 8.0 or higher.",
    ),
    "ranks": (
        {"world_size": 3},
        "global_batch_size=8 is not a multiple of micro_batch_size x world_size = 1 x 3 = 3; the nearest that are: 6 and 9.",
    ),
    "micro-batch": (
        {"micro_batch_size": 3},
        "global_batch_size=8 is not a multiple of micro_batch_size x world_size = 3 x 1 = 3; the nearest that are: 6 and 9.",
    ),
    "field": ({"steps": 0}, "steps=0 must be at least 1."),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_question_is_answered_with_what_would_be_right(case: str) -> None:
    changes, sentence = WRONG[case]

    with pytest.raises(PlanError) as caught:
        feasible_plans(**{"model": "mlp", "card": "a100-80gb", "global_batch_size": 8, **changes})

    assert str(caught.value) == sentence


def test_an_error_in_progress_ends_the_search() -> None:
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int, plan: Plan) -> None:
        seen.append((done, total))
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        feasible_plans("mlp", A100, 8, micro_batch_size=8, precision="fp32", progress=progress)

    assert seen[0] == (0, 6) and seen[-1] == (1, 6), seen
