"""What several ranks cost in memory, by category, on the CPU: to the byte where a formula says so."""

from collections.abc import Callable
from typing import Any

import pytest

from memlab.catalog import MODELS
from tests.ddp.pool import Pool

Ranks = Callable[[int], Pool]
MODEL = "gpt-tiny"
PLAN = dict(model=MODEL, micro_batch_size=1, world_size=2, steps=3)
WHOLE = 4 * MODELS[MODEL].parameters


def last_step(ranks: Pool, **fields: Any) -> dict[str, Any]:
    return ranks.run("metered", fields={**PLAN, **fields})[0][-1]


def test_buckets_hold_the_gradients_once_more(pool: Ranks) -> None:
    peak = last_step(pool(2))["peak"]

    assert (peak["communication_buffers"], peak["gradients"]) == (WHOLE, WHOLE)


def test_views_of_buckets_save_one_copy_of_the_gradients(pool: Ranks) -> None:
    copies = last_step(pool(2))
    views = last_step(pool(2), gradient_as_bucket_view=True)

    with_copies, with_views = copies["phases"]["optimizer"], views["phases"]["optimizer"]
    assert (with_copies["communication_buffers"], with_copies["gradients"]) == (WHOLE, WHOLE)
    assert (with_views["communication_buffers"], with_views["gradients"]) == (WHOLE, 0)
    # In backward one gradient at a time is still outside, before DDP moves it into its bucket.
    assert 0 < copies["total"] - views["total"] <= WHOLE


def test_accumulating_apart_from_the_buckets_views_save_nothing_while_forward_runs(pool: Ranks) -> None:
    fields = {"gradient_accumulation_steps": 2, "gradient_as_bucket_view": True}
    dropped = last_step(pool(2), **fields)["phases"]["forward"]
    kept = last_step(pool(2), **fields, zero_grad="in_place")["phases"]["forward"]

    # Dropped gradients come back outside of the buckets, until the exchange moves them in.
    assert (dropped["communication_buffers"], dropped["gradients"]) == (WHOLE, WHOLE)
    assert (kept["communication_buffers"], kept["gradients"]) == (WHOLE, 0)


@pytest.mark.slow
def test_zero1_holds_each_moment_on_one_rank(pool: Ranks) -> None:
    ranks = pool(2).run("metered", fields={**PLAN, "data_parallel": "zero1"})
    replicas = pool(2).run("metered", fields=PLAN)
    state = [steps[-1]["peak"]["optimizer_state"] for steps in ranks]

    assert sum(state) == replicas[0][-1]["peak"]["optimizer_state"]
    assert all(0 < one < 2 * WHOLE for one in state)


@pytest.mark.slow
def test_fsdp2_shares_out_weights_gradients_and_moments(pool: Ranks) -> None:
    divided = last_step(pool(2), data_parallel="fsdp2")["phases"]["optimizer"]
    replicas = last_step(pool(2))["phases"]["optimizer"]

    for category in ("parameters", "gradients", "optimizer_state"):
        assert divided[category] == pytest.approx(replicas[category] / 2, rel=0.02), category


@pytest.mark.slow
def test_fsdp2_without_exchange_keeps_whole_gradients(pool: Ranks) -> None:
    fields = {"data_parallel": "fsdp2", "gradient_accumulation_steps": 3}
    every = last_step(pool(2), **fields, gradient_sync="every-micro-step")["phases"]["forward"]
    last = last_step(pool(2), **fields)["phases"]["forward"]

    # The share of the gradients that a rank holds gives way to all of them, on every rank.
    assert last["gradients"] == WHOLE
    assert sum(last.values()) - sum(every.values()) == pytest.approx(WHOLE / 2, rel=0.02)
