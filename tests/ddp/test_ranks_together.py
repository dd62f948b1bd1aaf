"""Several ranks train what one rank trains, and exchange exactly what they must."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.ddp import tasks
from tests.ddp.pool import Pool

Ranks = Callable[[int], Pool]
SHARDED = ("zero1", "fsdp2")
"""Slow to try: torch takes seconds to import what they need."""
TOLERANCE = {"fp32": 2e-6, "bf16-mixed": 3e-2, "fp16-mixed": 4e-3, "bf16-true": 6e-2}
"""Largest difference of a gradient, as a share of the largest gradient. FP32: sums in another order.
The others round each micro-batch's gradient to 8 or 11 bits, bf16-true the sums too."""


def difference(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    """Return the largest difference, as a share of the largest number."""
    pairs = list(zip(one, other, strict=True))
    largest = max(float(b.abs().max()) for _, b in pairs)
    return max(float((a - b).abs().max()) for a, b in pairs) / largest


def compare(ranks: Pool, **fields: Any) -> None:
    """Hold the gradients of `ranks` against one process on the union of their data."""
    fields = {"micro_batch_size": 4, "zero_grad": "before_forward", **fields}
    found = ranks.run("trained", fields={**fields, "world_size": ranks.world_size})
    together = fields["micro_batch_size"] * ranks.world_size
    alone = {name: value for name, value in fields.items() if name not in ("data_parallel", "gradient_sync")}
    expected = tasks.trained({**alone, "micro_batch_size": together})

    for rank in found:
        worst = difference(rank["gradients"], expected["gradients"])
        assert worst <= TOLERANCE[fields.get("precision", "fp32")], f"{worst=:.2e}"
        assert rank["losses"] == pytest.approx(expected["losses"], rel=2e-2)
        assert rank["items"] == expected["items"]


CASES = [
    (2, {"gradient_accumulation_steps": 3}),
    (2, {"gradient_accumulation_steps": 2, "gradient_sync": "every-micro-step"}),
    (2, {"gradient_accumulation_steps": 2, "gradient_sync": "backward-only"}),
    (2, {"activation_checkpointing": "full", "gradient_accumulation_steps": 2}),
    (2, {"precision": "bf16-mixed", "gradient_accumulation_steps": 2}),
    (2, {"precision": "fp16-mixed", "activation_checkpointing": "full"}),
    (2, {"precision": "bf16-true", "master_weights": True}),
    pytest.param(2, {"data_parallel": "zero1", "gradient_accumulation_steps": 2}, marks=pytest.mark.slow),
    pytest.param(2, {"data_parallel": "fsdp2", "gradient_accumulation_steps": 2}, marks=pytest.mark.slow),
    pytest.param(
        2,
        {"data_parallel": "fsdp2", "gradient_accumulation_steps": 2, "gradient_sync": "every-micro-step"},
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize(("world_size", "fields"), CASES, ids=str)
def test_ranks_have_the_gradient_of_one_rank_on_all_data(
    pool: Ranks, world_size: int, fields: dict[str, Any]
) -> None:
    compare(pool(world_size), **fields)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world_size", "k", "precision", "checkpointing"),
    list(itertools.product((1, 2, 3, 4), (1, 2, 4), TOLERANCE, ("none", "full"))),
)
def test_ranks_have_the_gradient_of_one_rank_in_every_combination(
    pool: Ranks, world_size: int, k: int, precision: str, checkpointing: str
) -> None:
    compare(
        pool(world_size),
        gradient_accumulation_steps=k,
        precision=precision,
        activation_checkpointing=checkpointing,
    )


def test_tokens_of_all_ranks_count_alike(pool: Ranks) -> None:
    answers = pool(2).run("tokens", rows=[[1.0] * 8, [9.0] * 2])

    assert answers == [{"loss": pytest.approx(2.6), "items": 10, "gradient": pytest.approx(2.6)}] * 2


GPT = dict(
    model="gpt-tiny",
    sequence_length=16,
    micro_batch_size=1,
    gradient_accumulation_steps=4,
    world_size=2,
    steps=3,
)
CALLS = {"last-micro-step": (0, 0, 0, 1), "every-micro-step": (1, 1, 1, 1), "backward-only": (1, 1, 1, 1)}


@pytest.mark.parametrize("sync", CALLS)
def test_all_reduces_are_counted_in_buckets(pool: Ranks, sync: str) -> None:
    first, second, third = pool(2).run(
        "exchanged", fields={**GPT, "gradient_sync": sync, "bucket_cap_mb": 1}
    )[0]

    # The first exchange has one bucket for all; then DDP lays them out in the order of the gradients.
    buckets, gradient_bytes = third["buckets"], first["bytes"][-1]
    assert len(buckets) > 1 and sum(buckets) == gradient_bytes
    whole = list(itertools.accumulate(CALLS[sync])).index(1)
    assert first["calls"] == tuple(
        n * (1 if place == whole else len(buckets)) for place, n in enumerate(CALLS[sync])
    )
    at_once = sync != "last-micro-step"
    assert (first["rebuilt"], second["rebuilt"], third["rebuilt"]) == (at_once, not at_once, False)
    assert third["calls"] == tuple(n * len(buckets) for n in CALLS[sync])
    assert third["bytes"] == tuple(n * gradient_bytes for n in CALLS[sync])
    assert 0 < third["seconds"]


def test_the_gradient_bytes_are_four_for_each_weight(pool: Ranks) -> None:
    from memlab.catalog import MODELS

    step = pool(2).run("exchanged", fields={**GPT, "steps": 1, "sequence_length": 128})[0][0]

    assert step["buckets"] == (4 * MODELS["gpt-tiny"].parameters,)


def test_ranks_that_never_exchange_drift_apart(pool: Ranks) -> None:
    never = pool(2).run("exchanged", fields={**GPT, "gradient_sync": "never"})
    right = pool(2).run("exchanged", fields=GPT)

    assert [step["calls"] for step in never[0]] == [(0, 0, 0, 0)] * 3
    assert never[0][-1]["checksum"] != never[1][-1]["checksum"]
    assert [step["checksum"] for step in right[0]] == [step["checksum"] for step in right[1]]


@pytest.mark.parametrize("sync", ["last-micro-step", "every-micro-step"])
@pytest.mark.parametrize("samples", [9, 10, 13])
def test_a_rank_without_a_sample_takes_part_with_weight_zero(pool: Ranks, samples: int, sync: str) -> None:
    fields = {"micro_batch_size": 2, "gradient_accumulation_steps": 2}
    two = {**fields, "world_size": 2, "gradient_sync": sync}

    found = pool(2).run("trained", fields=two, samples=samples, steps=3)
    expected = tasks.trained({**fields, "micro_batch_size": 4}, samples=samples, steps=3)

    for rank in found:
        assert difference(rank["weights"], expected["weights"]) < 1e-5
        assert rank["losses"] == pytest.approx(expected["losses"], rel=1e-5)
    assert found[0]["calls"] == found[1]["calls"]


@pytest.mark.parametrize(
    "data_parallel", ["ddp", *(pytest.param(name, marks=pytest.mark.slow) for name in SHARDED)]
)
def test_the_global_norm_is_clipped(pool: Ranks, data_parallel: str) -> None:
    fields = {"micro_batch_size": 4, "clip_norm": 0.01}
    found = pool(2).run(
        "trained", fields={**fields, "world_size": 2, "data_parallel": data_parallel}, steps=2
    )
    expected = tasks.trained({**fields, "micro_batch_size": 8}, steps=2)

    for rank in found:
        assert rank["norms"] == pytest.approx(expected["norms"], rel=1e-5)
        assert difference(rank["weights"], expected["weights"]) < 1e-6


def test_ranks_skip_a_step_together(pool: Ranks) -> None:
    answers = pool(2).run("overflow", bad_rank=1, world_size=2)

    assert answers == [[[True, False], [65536.0, 32768.0]]] * 2


def test_ranks_drop_different_activations_of_equal_weights(pool: Ranks) -> None:
    one, other = pool(2).run("masks", fields={"world_size": 2, "dropout": 0.5})
    equal = pool(2).run("masks", fields={"world_size": 2})

    assert one != other and equal[0] == equal[1]


def test_a_weight_without_gradient_is_named(pool: Ranks) -> None:
    answers = pool(2).run("refused", fields={"world_size": 2, "micro_batch_size": 4}, name="unused")

    assert (
        answers
        == [
            "forgotten.weight, forgotten.bias of Unused got no gradient in this micro-step, and DDP waits for one from "
            "every weight: use it in the loss, freeze it (requires_grad_(False)), or set find_unused_parameters=True."
        ]
        * 2
    )
    allowed = {"world_size": 2, "micro_batch_size": 4, "find_unused_parameters": True}
    assert pool(2).run("refused", fields=allowed, name="unused") == ["nothing was refused"] * 2


def test_a_torchrun_of_another_size_is_refused(pool: Ranks) -> None:
    answers = pool(2).run("refused", fields={"model": "mlp", "world_size": 3})

    assert (
        answers
        == [
            "world_size=3 does not go with the 2 processes that torchrun started: set world_size=2, or start 3 "
            "(--nnodes times --nproc-per-node)."
        ]
        * 2
    )
