"""Widgets on one side, a Plan on the other."""

import pytest

from memlab.catalog import MODELS
from memlab.plan import Plan, PlanError
from memlab.ui.controls import Controls

SMALL = [name for name, card in MODELS.items() if card.small]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"model": "convnet", "norm": "group", "optimizer": "sgd", "momentum": 0.9},
        {"micro_batch_size": 300, "gradient_accumulation_steps": 100, "steps": 1000},
        {"activation_checkpointing": "every-3", "sequence_length": 48, "dropout": 0.1},
        {"data": "file:/some/text.txt", "learning_rate": 0.0123},
    ],
)
def test_untouched_controls_are_the_plan_that_was_given(fields: dict[str, object]) -> None:
    assert Controls(**fields).plan() == Plan(**fields)


@pytest.mark.parametrize("model", SMALL)
@pytest.mark.parametrize("before", MODELS)
def test_a_change_of_model_leaves_a_possible_plan(before: str, model: str) -> None:
    controls = Controls(model=before, norm=MODELS[before].norms[-1])

    controls.fields["model"].widget.value = model

    assert controls.problem == ""
    assert controls.plan().model == model
    assert [value for _, value in controls.fields["norm"].widget.options] == list(MODELS[model].norms)


def test_large_models_are_offered_only_where_the_plan_names_one() -> None:
    def offered(model: str) -> set[str]:
        return {value for _, value in Controls(model=model).fields["model"].widget.options}

    assert offered("gpt-tiny") == set(SMALL)
    assert offered("llama-7b") == {*SMALL, "llama-7b"}


def test_the_global_batch_is_shown_as_its_product() -> None:
    controls = Controls(micro_batch_size=8, gradient_accumulation_steps=4)
    assert "8 x 4 x 1 rank</span> <span>= global batch 32" in controls.product.value

    controls.fields["gradient_accumulation_steps"].widget.value = 2

    assert "8 x 2 x 1 rank</span> <span>= global batch 16" in controls.product.value


def test_an_impossible_plan_is_explained_beside_its_control() -> None:
    controls = Controls(precision="bf16-true", master_weights=True)

    controls.fields["precision"].widget.value = "fp32"

    said = controls.fields["precision"].error.value
    assert 'role="alert"' in said
    assert "master_weights=True needs precision=&#x27;bf16-true&#x27;" in said
    with pytest.raises(PlanError, match="master_weights=True needs precision='bf16-true'"):
        controls.plan()

    controls.fields["precision"].widget.value = "bf16-true"

    assert controls.problem == controls.fields["precision"].error.value == ""


def test_a_file_needs_its_path() -> None:
    controls = Controls()

    controls.fields["data"].widget.value = "file:"

    assert "data=" in controls.problem
    assert controls.fields["path"].block.layout.display == ""

    controls.fields["path"].widget.value = " my.txt "

    assert controls.plan().data == "file:my.txt"


def test_every_control_has_an_accessible_name() -> None:
    controls = Controls()

    assert all(controls.names.values())
    assert len(set(controls.names.values())) == len(controls.fields)


def test_sliders_speak_when_let_go() -> None:
    sliders = ("micro_batch_size", "gradient_accumulation_steps", "learning_rate", "steps")
    assert not any(Controls().fields[name].widget.continuous_update for name in sliders)


def test_impossible_settings_to_start_from_are_refused() -> None:
    with pytest.raises(PlanError, match="micro_batch_size=0 must be at least 1."):
        Controls(micro_batch_size=0)
    with pytest.raises(PlanError, match="model='custom' has no controls; choose one of 'mlp', "):
        Controls(model="custom")


def test_a_norm_that_nobody_chose_follows_the_model_and_a_chosen_one_stays() -> None:
    controls = Controls(model="gpt-tiny")
    controls.fields["card"].widget.value = "a100-80gb"

    for model in ("llama-7b", "gpt-tiny"):
        controls.fields["model"].widget.value = model
        assert controls.plan().norm == MODELS[model].norms[0]

    controls.fields["norm"].widget.value = "rms"
    controls.fields["model"].widget.value = "gpt-small"
    assert controls.plan().norm == "rms"
