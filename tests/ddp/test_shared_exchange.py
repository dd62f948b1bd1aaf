"""What FSDP2 gathers and scatters, by the formula of its shares."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from memlab import Plan
from memlab.models import build_model
from tests.ddp.pool import Pool

Ranks = Callable[[int], Pool]
GPT = {
    "model": "gpt-tiny",
    "sequence_length": 16,
    "micro_batch_size": 1,
    "steps": 2,
    "data_parallel": "fsdp2",
}
EXCHANGES = {"last-micro-step": (0, 0, 1), "every-micro-step": (1, 1, 1)}


def gathered(weights: list[nn.Parameter], world_size: int) -> int:
    """Return the bytes of `weights`, each filled up to as many rows for each rank."""
    rows = [world_size * -(-weight.shape[0] // world_size) for weight in weights]
    return sum(4 * count * weight[0].numel() for count, weight in zip(rows, weights, strict=True))


def parts(world_size: int) -> tuple[list[int], int]:
    """Return the bytes of each block of gpt-tiny, and of what is in none."""
    model = build_model(Plan(model="gpt-tiny", sequence_length=GPT["sequence_length"]))
    blocks = [list(block.parameters()) for block in model.blocks]
    within = {id(weight) for block in blocks for weight in block}
    rest = [weight for weight in model.parameters() if id(weight) not in within]
    return [gathered(block, world_size) for block in blocks], gathered(rest, world_size)


@pytest.mark.parametrize("sync", EXCHANGES)
def test_blocks_are_gathered_twice_and_gradients_scattered_once(pool: Ranks, sync: str) -> None:
    ranks = pool(2).run(
        "exchanged", fields={**GPT, "world_size": 2, "gradient_accumulation_steps": 3, "gradient_sync": sync}
    )

    blocks, rest = parts(2)
    times = EXCHANGES[sync]
    for step in (step for rank in ranks for step in rank):
        assert step["gathers"] == (2 * len(blocks) + 1,) * 3
        assert step["gathered_bytes"] == (2 * sum(blocks) + rest,) * 3
        assert step["calls"] == tuple((len(blocks) + 1) * n for n in times)
        assert step["bytes"] == tuple((sum(blocks) + rest) * n for n in times)
        assert step["buckets"] == (*blocks[::-1], rest)


def test_each_collective_has_a_span_in_its_micro_step(pool: Ranks) -> None:
    step = pool(2).run("exchanged", fields={**GPT, "world_size": 2, "gradient_accumulation_steps": 2})[0][0]

    of_micro_step = [
        [n for n, _, _ in step[kind]] for kind in ("all_gathers", "reduce_scatters", "all_reduces")
    ]
    assert [found.count(n) for found in of_micro_step for n in (0, 1)] == [
        *step["gathers"],
        *step["calls"],
        *(0, 0),
    ]
    spans = sorted(
        (begin, end) for kind in ("all_gathers", "reduce_scatters") for _, begin, end in step[kind]
    )
    assert all(begin < end for begin, end in spans)
    assert step["seconds"] == pytest.approx(sum(end - begin for begin, end in spans))


def test_gathered_weights_are_parameters_and_flat_buffers_are_for_communication(pool: Ranks) -> None:
    forward = pool(2).run("metered", fields={**GPT, "world_size": 2})[0][-1]["phases"]["forward"]

    blocks, rest = parts(2)
    share = (sum(blocks) + rest) // 2
    # At most one block is whole, and its all-gather's buffer lies beside that of the one before.
    assert forward["parameters"] == share + rest + blocks[-1]
    assert forward["communication_buffers"] == 2 * blocks[-1]


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("world_size", [3, 4])
def test_checkpointing_gathers_no_more_and_more_ranks_fill_up_more(
    pool: Ranks, world_size: int, checkpointing: str
) -> None:
    fields: dict[str, Any] = {**GPT, "world_size": world_size, "activation_checkpointing": checkpointing}
    step = pool(world_size).run("exchanged", fields=fields)[0][0]

    blocks, rest = parts(world_size)
    assert step["gathered_bytes"] == (2 * sum(blocks) + rest,)
    assert step["bytes"] == (sum(blocks) + rest,)
