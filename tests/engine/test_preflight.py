"""A plan that cannot fit is refused in one line, before any memory is taken."""

import pytest
import torch

from memlab.catalog import MODELS
from memlab.engine import preflight
from memlab.engine.measure import measure, measure_events
from memlab.engine.out_of_memory import OutOfMemory
from memlab.engine.predict import predict
from memlab.engine.preflight import least_bytes, why_it_cannot_fit, why_ranks_cannot_fit
from memlab.events import Failed
from memlab.plan import Plan, PlanError
from memlab.units import GiB

CPU = torch.device("cpu")


def test_a_preset_that_cannot_fit_is_refused_before_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "free_bytes", lambda: 8 * GiB)
    plan = Plan(model="llama-7b", device="cpu", steps=1)

    (failed,) = measure_events(plan)

    assert failed == Failed(
        kind="out-of-memory",
        message="model='llama-7b' needs at least 100.4 GiB (6,738,415,616 weights with gradients and optimizer "
        "state, before one activation), and cpu has 8.0 GiB free: predict it for a card instead, "
        "memlab.predict(plan, card='a100-80gb'), or choose a smaller model.",
    )
    with pytest.raises(OutOfMemory, match="llama-7b"):
        measure(plan)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"optimizer": "sgd"},
        {"optimizer": "sgd", "momentum": 0.9},
        {"lora_rank": 4},
        {"precision": "bf16-true"},
        {"precision": "bf16-true", "master_weights": True},
        {"precision": "bf16-true", "optimizer_state_precision": "fp32"},
    ],
)
def test_the_least_is_never_above_what_a_run_takes(fields: dict[str, object]) -> None:
    plan = Plan(model="gpt2", micro_batch_size=1, sequence_length=8, steps=2, device="cpu", **fields)

    assert MODELS["gpt2"].parameters <= least_bytes(plan) <= predict(plan).peak.total


def test_what_is_free_decides_and_small_models_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "free_bytes", lambda: 0)
    assert why_it_cannot_fit(Plan(), CPU) is None
    assert why_it_cannot_fit(Plan(model="resnet50"), CPU)

    monkeypatch.setattr(preflight, "free_bytes", lambda: None)
    assert why_it_cannot_fit(Plan(model="llama-7b"), CPU) is None


def test_more_processes_than_fit_are_refused_before_one_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "free_bytes", lambda: 8 * GiB)

    with pytest.raises(PlanError) as refusal:
        measure(Plan(model="mlp", world_size=1000, device="cpu"))

    assert str(refusal.value) == (
        "world_size=1000 starts 1000 processes on this machine, which take at least 195.3 GiB with torch alone, and "
        "8.0 GiB are free: choose at most 40, or predict it without processes, memlab.predict(plan)."
    )
    assert why_ranks_cannot_fit(Plan(world_size=40), CPU) is None
    assert why_ranks_cannot_fit(Plan(world_size=41), CPU)
