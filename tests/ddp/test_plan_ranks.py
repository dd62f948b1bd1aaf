"""The text of every PlanError that several ranks raise before one starts."""

from typing import Any

import pytest

from memlab.plan import SEVERAL_RANKS, Plan, PlanError

TWO = {"model": "mlp", "world_size": 2}
ALONE = "needs world_size of 2 or more: one rank has nobody to exchange gradients with."
IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    (dict(gradient_sync="never"), f"gradient_sync='never' {ALONE}"),
    (dict(data_parallel="fsdp2"), f"data_parallel='fsdp2' {ALONE}"),
    (dict(gradient_as_bucket_view=True), f"gradient_as_bucket_view=True {ALONE}"),
    (dict(bucket_cap_mb=1), f"bucket_cap_mb=1 {ALONE}"),
    (dict(find_unused_parameters=True), f"find_unused_parameters=True {ALONE}"),
    (dict(model="convnet", norm="batch", sync_batch_norm=True), f"sync_batch_norm=True {ALONE}"),
    (dict(TWO, bucket_cap_mb=0), "bucket_cap_mb=0 must be at least 1."),
    (dict(TWO, gradient_as_bucket_view=1), "gradient_as_bucket_view=1 must be True or False."),
    (dict(TWO, data_parallel="zero3"), "data_parallel='zero3' must be one of 'ddp', 'zero1', 'fsdp2'."),
    (
        dict(TWO, gradient_sync="sometimes"),
        "gradient_sync='sometimes' must be one of 'last-micro-step', 'every-micro-step', 'backward-only', 'never'.",
    ),
    (
        dict(TWO, precision="bf16-true", gradient_precision="fp32"),
        "gradient_precision='fp32' does not go with world_size=2: ranks exchange gradients in the precision of the "
        "weights; leave it out.",
    ),
    (
        dict(TWO, precision="bf16-true", master_weights=True, data_parallel="zero1"),
        "master_weights=True does not go with data_parallel='zero1', which divides the optimizer's weights by itself; "
        "choose data_parallel='ddp' or leave it out.",
    ),
    (
        dict(TWO, data_parallel="fsdp2", bucket_cap_mb=1),
        "bucket_cap_mb=1 is of DDP, and data_parallel='fsdp2' has no buckets; leave it out.",
    ),
    (
        dict(TWO, data_parallel="fsdp2", gradient_sync="never"),
        "gradient_sync='never' does not go with data_parallel='fsdp2': a rank gets the gradient of its share of the "
        "weights by the exchange alone; choose 'ddp' to see ranks drift.",
    ),
    (
        dict(TWO, data_parallel="fsdp2", gradient_sync="backward-only"),
        "gradient_sync='backward-only' is a bug of DDP, which reads no_sync in forward; FSDP2 reads "
        "set_requires_gradient_sync in backward: choose 'last-micro-step', or data_parallel='ddp' to see the bug.",
    ),
    (dict(TWO, sync_batch_norm=True), "sync_batch_norm=True needs norm='batch', not 'none'."),
    (
        dict(TWO, device="cuda:1"),
        "device='cuda:1' names one GPU, and world_size=2 ranks take one each, from cuda:0 on: say device='cuda'.",
    ),
]


@pytest.mark.parametrize(("fields", "message"), IMPOSSIBLE, ids=str)
def test_impossible_ranks_are_refused_with_the_way_out(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError) as error:
        Plan(**fields)

    assert str(error.value) == message


def test_the_plan_of_one_rank_keeps_all_but_what_is_for_several() -> None:
    plan = Plan(world_size=4, gradient_sync="never", gradient_as_bucket_view=True, seed=3)

    assert plan.of_one_rank == Plan(seed=3)
    assert {name for name in plan.to_dict() if plan.to_dict()[name] != Plan(seed=3).to_dict()[name]} <= {
        "world_size",
        *SEVERAL_RANKS,
    }
