"""A Plan is a value: impossible ones do not exist, and the error says what would be right."""

import inspect
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab.catalog import MODELS
from memlab.plan import Plan, PlanError


def test_the_defaults_are_those_that_the_docs_promise() -> None:
    plan = Plan()

    assert (plan.model, plan.data, plan.norm, plan.sequence_length) == ("gpt-tiny", "text", "layer", 128)
    assert (plan.micro_batch_size, plan.gradient_accumulation_steps, plan.world_size) == (8, 1, 1)
    assert (plan.precision, plan.optimizer, plan.learning_rate, plan.steps) == ("fp32", "adamw", 3e-4, 20)
    assert (plan.schedule, plan.dropout, plan.clip_norm, plan.seed) == ("constant", 0.0, None, 0)
    assert (plan.activation_checkpointing, plan.device) == ("none", "auto")


@pytest.mark.parametrize("model", MODELS)
def test_what_the_plan_leaves_out_is_the_models_first_choice(model: str) -> None:
    plan = Plan(model=model)

    assert plan.data == MODELS[model].data[0]
    assert plan.norm == MODELS[model].norms[0]
    assert plan.sequence_length == MODELS[model].sequence_length


def test_a_custom_model_brings_its_data_and_any_norm() -> None:
    plan = Plan(model="custom", norm="batch", batch_norm_statistics="frozen")

    assert (plan.data, plan.norm) == ("custom", "batch")


def test_a_file_is_data_for_a_gpt() -> None:
    assert Plan(data="file:notes.txt").data == "file:notes.txt"


@pytest.mark.parametrize(
    ("policy", "every"), [("none", 0), ("selective", 0), ("full", 1), ("every-3", 3), ("every-12", 12)]
)
def test_a_checkpointing_policy_says_which_blocks(policy: str, every: int) -> None:
    assert Plan(activation_checkpointing=policy).checkpoint_every == every


def test_equal_plans_are_one_key() -> None:
    assert {Plan(seed=1): "a"}[Plan(seed=1)] == "a"
    assert Plan(seed=1) != Plan(seed=2)


def test_a_plan_cannot_change() -> None:
    with pytest.raises(AttributeError, match="cannot assign to field 'seed'"):
        Plan().seed = 1  # type: ignore[misc]


PLANS = st.builds(
    Plan,
    model=st.sampled_from(["gpt-tiny", "gpt-small"]),
    data=st.sampled_from(["text", "ragged-text", "file:a b.txt"]),
    micro_batch_size=st.integers(1, 64),
    gradient_accumulation_steps=st.integers(1, 64),
    world_size=st.integers(1, 8),
    precision=st.sampled_from(["fp32", "bf16-mixed", "fp16-mixed", "bf16-true"]),
    clip_norm=st.none() | st.floats(1e-3, 1e3),
    foreach=st.sampled_from([None, True, False]),
    learning_rate=st.floats(1e-8, 10.0),
)


@settings(deadline=None)
@given(PLANS)
def test_json_gives_the_same_plan_back(plan: Plan) -> None:
    assert Plan.from_json(plan.to_json()) == plan


@settings(deadline=None)
@given(PLANS)
def test_the_global_batch_is_the_product_and_leads_back_to_the_steps(plan: Plan) -> None:
    product = plan.micro_batch_size * plan.gradient_accumulation_steps * plan.world_size
    sizes = {"micro_batch_size": plan.micro_batch_size, "world_size": plan.world_size}

    derived = Plan.for_global_batch(plan.global_batch_size, **sizes)

    assert plan.global_batch_size == product
    assert derived.gradient_accumulation_steps == plan.gradient_accumulation_steps


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(1, 32), st.integers(1, 8))
def test_a_refused_global_batch_names_neighbours_that_are_not_refused(
    batch: int, micro: int, world: int
) -> None:
    sizes = {"micro_batch_size": micro, "world_size": world}
    try:
        plan = Plan.for_global_batch(batch, **sizes)
    except PlanError as error:
        named = [int(word) for word in str(error).rpartition(": ")[2].rstrip(".").split(" and ")]
        assert all(Plan.for_global_batch(near, **sizes).global_batch_size == near for near in named)
        assert min(abs(near - batch) for near in named) < micro * world
    else:
        assert plan.global_batch_size == batch


@pytest.mark.parametrize(
    ("batch", "sizes", "sentence"),
    [
        (
            100,
            {"micro_batch_size": 8, "world_size": 3},
            "global_batch_size=100 is not a multiple of micro_batch_size x world_size = 8 x 3 = 24; "
            "the nearest that are: 96 and 120.",
        ),
        (
            5,
            {"micro_batch_size": 8},
            "global_batch_size=5 is not a multiple of micro_batch_size x world_size = 8 x 1 = 8; "
            "the nearest that is: 8.",
        ),
        (0, {}, "global_batch_size=0 must be at least 1."),
        (64.0, {}, "global_batch_size=64.0 must be a whole number, 1 or more."),
        (64, {"world_size": 0}, "world_size=0 must be at least 1."),
    ],
)
def test_an_impossible_global_batch_says_so(batch: Any, sizes: dict[str, int], sentence: str) -> None:
    with pytest.raises(PlanError) as caught:
        Plan.for_global_batch(batch, **sizes)

    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "a plan is a JSON object of field names and values, not []."),
        (
            "{model",
            "a plan is a JSON object, and this text is no JSON: "
            "Expecting property name enclosed in double quotes: line 1 column 2 (char 1).",
        ),
        ('{"seed": -1}', "seed=-1 must be at least 0."),
    ],
)
def test_json_that_is_no_plan_says_so(text: str, sentence: str) -> None:
    with pytest.raises(PlanError) as caught:
        Plan.from_json(text)

    assert str(caught.value) == sentence


FIELD_NAMES = ", ".join(field.name for field in fields(Plan))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nope", f"'nope' is not a field of a Plan; the fields are {FIELD_NAMES}."),
        ("batch_size", "'batch_size' is not a field of a Plan; did you mean 'micro_batch_size'?"),
        (
            "global_batch_size",
            "'global_batch_size' is not a field of a Plan, but follows from three; Plan.for_global_batch takes it.",
        ),
    ],
)
def test_an_unknown_field_is_named_beside_those_that_are_near(name: str, sentence: str) -> None:
    for build in (
        lambda: Plan(**{name: 8}),
        lambda: Plan.from_dict({name: 8}),
        lambda: replace(Plan(), **{name: 8}),
    ):
        with pytest.raises(PlanError) as caught:
            build()
        assert str(caught.value) == sentence


def test_the_signature_of_a_plan_shows_its_fields() -> None:
    assert list(inspect.signature(Plan).parameters) == [field.name for field in fields(Plan)]


def test_steps_that_a_global_batch_derives_cannot_be_given_too() -> None:
    with pytest.raises(PlanError) as caught:
        Plan.for_global_batch(16, gradient_accumulation_steps=2)

    assert str(caught.value) == (
        "gradient_accumulation_steps=2 is what for_global_batch derives: "
        "leave it out, or say Plan(...) without global_batch_size."
    )
