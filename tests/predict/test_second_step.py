"""The first step's micro-steps tell exactly those of the second, and are not asked where something was left."""

from typing import Any

import pytest

from memlab import Plan
from memlab.predicting.second_step import MicroSteps
from memlab.predicting.steps import steps_to_trace
from memlab.predicting.trial import Trial, trial
from memlab.workload import workload_for

AMPERE, CPU = (8, 0), None
GPT = {"model": "gpt-tiny", "sequence_length": 16, "micro_batch_size": 2}
MLP = {"model": "mlp", "micro_batch_size": 4}
CONVNET = {"model": "convnet", "micro_batch_size": 4, "norm": "batch"}
BF16 = {"precision": "bf16-true"}
MASTER = {**BF16, "master_weights": True}
TWICE = {"gradient_accumulation_steps": 2}
TOLD = [
    GPT,
    {**GPT, **TWICE, "precision": "bf16-mixed", "dropout": 0.1, "clip_norm": 1.0},
    {**GPT, "activation_checkpointing": "full", "foreach": True},
    {**GPT, "activation_checkpointing": "selective", "precision": "bf16-mixed", "fused": True},
    {**GPT, **TWICE, "lora_rank": 2, "optimizer": "sgd", "momentum": 0.9},
    {**GPT, **TWICE, "loss_chunks": 4},
    {**GPT, **BF16},
    {**GPT, **MASTER, **TWICE},
    {**GPT, **MASTER, "gradient_precision": "fp32", "clip_norm": 1.0},
    {**GPT, **MASTER, "gradient_precision": "bf16+fp32", **TWICE},
    {**GPT, **BF16, "optimizer_state_precision": "fp32"},
    {**MLP, "gradient_accumulation_steps": 5},
    {**MLP, "optimizer": "sgd"},
    CONVNET,
    {**CONVNET, **TWICE, "batch_norm_statistics": "frozen", "precision": "bf16-mixed"},
]
TRACED = [
    {**MLP, "zero_grad": "in_place"},  # gradients stay
    {**MLP, "zero_grad": "before_forward"},
    {**MLP, "zero_grad": "before_backward", **TWICE},
    {**MLP, "precision": "fp16-mixed"},  # the first backward makes the scale
    {**GPT, "data": "ragged-text", "sequence_length": 128},  # batches of other shapes
    {**CONVNET, **TWICE, "batch_norm_statistics": "accumulated"},  # the update reads more than gradients
    {**MLP, "steps": 1},
    {**MLP, "world_size": 2},
]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows by one with each step that is told by another."""
    seen: list[object] = []
    original = MicroSteps.update_alone

    def update_alone(self: MicroSteps, *parts: Any) -> Any:
        seen.append(self)
        return original(self, *parts)

    monkeypatch.setattr(MicroSteps, "update_alone", update_alone)
    return seen


def tried(fields: dict, capability: tuple[int, int] | None, *, in_full: bool) -> Trial:
    plan = Plan(**{"device": "cpu", **fields})
    workload = workload_for(plan)
    return trial(plan, workload, steps_to_trace(plan, workload).traced, capability, in_full=in_full)


def assert_equal(short: Trial, full: Trial) -> None:
    assert short.trace == full.trace  # each change, its storage, category, place and module
    assert (short.peak, short.step_peaks) == (full.peak, full.step_peaks)
    assert (short.peaks_by_phase, short.notices) == (full.peaks_by_phase, full.notices)


CASES = [
    *((fields, CPU) for fields in TOLD),
    *((fields, AMPERE) for fields in TOLD[:3]),
    *(pytest.param(fields, AMPERE, marks=pytest.mark.slow) for fields in TOLD[3:]),
]


@pytest.mark.parametrize(("fields", "capability"), CASES, ids=str)
def test_the_first_step_tells_the_second_exactly(fields: dict, capability: tuple | None, told: list) -> None:
    full = tried(fields, capability, in_full=True)
    assert not told
    short = tried(fields, capability, in_full=False)

    assert len(told) == 1
    assert_equal(short, full)


@pytest.mark.parametrize("fields", TRACED, ids=str)
def test_a_step_that_is_not_like_the_first_is_traced(fields: dict, told: list) -> None:
    short, full = (tried(fields, CPU, in_full=whole) for whole in (False, True))

    assert not told
    assert_equal(short, full)


def test_a_model_that_keeps_what_it_made_is_traced(told: list, monkeypatch: pytest.MonkeyPatch) -> None:
    from memlab.models.mlp import MLP as Model

    forward = Model.forward

    def keeping(self: Any, *inputs: Any) -> Any:
        out = forward(self, *inputs)
        if not hasattr(self, "kept"):
            self.kept = out.detach().clone()
        return out

    monkeypatch.setattr(Model, "forward", keeping)
    short, full = (tried(MLP, CPU, in_full=whole) for whole in (False, True))

    assert not told
    assert_equal(short, full)
