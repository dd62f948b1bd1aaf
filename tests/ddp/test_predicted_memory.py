"""What is predicted of a rank is what it holds, to the byte: the buckets of DDP, the shares of ZeRO-1."""

from collections.abc import Callable
from typing import Any

import pytest

import memlab
from memlab import Plan
from memlab.trace import PHASES
from tests.ddp.pool import Pool

Ranks = Callable[[int], Pool]
MODELS = {
    "mlp": {"model": "mlp", "micro_batch_size": 2},
    "gpt-tiny": {"model": "gpt-tiny", "micro_batch_size": 1, "sequence_length": 16},
}
EXCHANGES = ("last-micro-step", "every-micro-step", "backward-only", "never")
DDP: list[dict[str, Any]] = [
    *(
        {
            "model": "mlp",
            "gradient_sync": sync,
            "gradient_accumulation_steps": k,
            "gradient_as_bucket_view": views,
        }
        for sync in EXCHANGES
        for k in (1, 2)
        for views in (False, True)
    ),
    *(
        {"model": model, "precision": precision, "gradient_as_bucket_view": views}
        for model, views in (("mlp", False), ("mlp", True), ("gpt-tiny", True))
        for precision in ("bf16-mixed", "bf16-true")
    ),
    {"model": "gpt-tiny", "gradient_accumulation_steps": 2},
    {"model": "gpt-tiny", "gradient_as_bucket_view": True, "zero_grad": "in_place"},
    {"model": "mlp", "find_unused_parameters": True},
]
ZERO1: list[dict[str, Any]] = [
    {"model": "mlp", "gradient_accumulation_steps": 2},
    {"model": "gpt-tiny"},
    {"model": "gpt-tiny", "optimizer": "sgd", "momentum": 0.9},
]


Found = tuple[list[int], dict[str, dict[str, int]]]
"""The peak of each step, and the largest instant of each phase of the last, by category.

Not of the second: before buckets are laid out anew, ranks exchange some integers, which are not predicted.
"""
FSDP2: list[dict[str, Any]] = [
    {"model": "gpt-tiny", "gradient_accumulation_steps": 2},
    {"model": "gpt-tiny", "gradient_accumulation_steps": 4},
    {"model": "gpt-tiny", "gradient_accumulation_steps": 2, "gradient_sync": "every-micro-step"},
    {"model": "gpt-tiny", "precision": "bf16-mixed", "activation_checkpointing": "full"},
    {"model": "gpt-tiny", "precision": "bf16-true"},
    {"model": "mlp"},
]


def measured(ranks: Pool, fields: dict[str, Any]) -> list[Found]:
    found = []
    for steps in ranks.run("metered", fields=fields):
        last = {phase: steps[-1]["phases"][phase] for phase in PHASES[1:]}
        found.append(([step["total"] for step in steps], last))
    return found


def predicted(fields: dict[str, Any]) -> Found:
    run = memlab.predict(Plan(**fields))
    *_, last = run.trace.steps().values()
    return list(run.step_peaks), {phase: dict(held) for phase, held in last.peaks_by_phase().items()}


def plan(fields: dict[str, Any]) -> dict[str, Any]:
    return {"world_size": 2, "steps": 3, "device": "cpu", **MODELS[fields["model"]], **fields}


@pytest.mark.parametrize("fields", DDP, ids=lambda fields: "-".join(map(str, fields.values())))
def test_ddp_holds_what_is_predicted(pool: Ranks, fields: dict[str, Any]) -> None:
    one = predicted(plan(fields))

    assert measured(pool(2), plan(fields)) == [one, one]


@pytest.mark.parametrize("fields", FSDP2, ids=lambda fields: "-".join(map(str, fields.values())))
def test_fsdp2_holds_what_is_predicted(pool: Ranks, fields: dict[str, Any]) -> None:
    fields = plan({**fields, "data_parallel": "fsdp2"})
    one = predicted(fields)

    assert measured(pool(2), fields) == [one, one]


@pytest.mark.parametrize("fields", ZERO1, ids=lambda fields: "-".join(map(str, fields.values())))
def test_the_fullest_rank_of_zero1_holds_what_is_predicted(pool: Ranks, fields: dict[str, Any]) -> None:
    fields = plan({**fields, "data_parallel": "zero1"})
    ranks, one = measured(pool(2), fields), predicted(fields)

    assert one in ranks
    assert state_of(one) == max(map(state_of, ranks))


def state_of(rank: Found) -> int:
    return rank[1]["optimizer"]["optimizer_state"]
