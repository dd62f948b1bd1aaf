"""What several ranks make possible and impossible: the rules of a Plan that speak of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from memlab.plan import SEVERAL_RANKS

if TYPE_CHECKING:
    from memlab.plan import Plan


def ranks(plan: "Plan") -> Iterator[str]:
    """Yield what is wrong with the fields that speak of several ranks."""
    yield from _alone(plan)
    yield from _whole_weights(plan)
    yield from _ddp_alone(plan)
    yield from _fsdp2(plan)
    if plan.sync_batch_norm and plan.norm != "batch" and plan.model != "custom":
        yield f"sync_batch_norm=True needs norm='batch', not {plan.norm!r}."
    if plan.world_size > 1 and plan.device.startswith("cuda:"):
        yield (
            f"device={plan.device!r} names one GPU, and world_size={plan.world_size} ranks take one each, from "
            "cuda:0 on: say device='cuda'."
        )


def _alone(plan: "Plan") -> Iterator[str]:
    if plan.world_size > 1:
        return
    for name in SEVERAL_RANKS:
        if getattr(plan, name) != type(plan).__dataclass_fields__[name].default:
            yield (
                f"{name}={getattr(plan, name)!r} needs world_size of 2 or more: one rank has nobody to exchange "
                "gradients with."
            )


def _whole_weights(plan: "Plan") -> Iterator[str]:
    if plan.world_size > 1 and plan.gradient_precision in ("fp32", "bf16+fp32"):
        yield (
            f"gradient_precision={plan.gradient_precision!r} does not go with world_size={plan.world_size}: ranks "
            "exchange gradients in the precision of the weights; leave it out."
        )
    for name in ("master_weights", "optimizer_state_precision"):
        if getattr(plan, name) and plan.data_parallel != "ddp":
            yield (
                f"{name}={getattr(plan, name)!r} does not go with data_parallel={plan.data_parallel!r}, which divides "
                "the optimizer's weights by itself; choose data_parallel='ddp' or leave it out."
            )


def _ddp_alone(plan: "Plan") -> Iterator[str]:
    if plan.data_parallel != "fsdp2":
        return
    for name, default in (
        ("gradient_as_bucket_view", False),
        ("bucket_cap_mb", 25),
        ("find_unused_parameters", False),
    ):
        if getattr(plan, name) != default:
            yield f"{name}={getattr(plan, name)!r} is of DDP, and data_parallel='fsdp2' has no buckets; leave it out."


def _fsdp2(plan: "Plan") -> Iterator[str]:
    if plan.data_parallel == "fsdp2" and plan.gradient_sync == "never":
        yield (
            "gradient_sync='never' does not go with data_parallel='fsdp2': a rank gets the gradient of its share "
            "of the weights by the exchange alone; choose 'ddp' to see ranks drift."
        )
    if plan.data_parallel == "fsdp2" and plan.gradient_sync == "backward-only":
        yield (
            "gradient_sync='backward-only' is a bug of DDP, which reads no_sync in forward; FSDP2 reads "
            "set_requires_gradient_sync in backward: choose 'last-micro-step', or data_parallel='ddp' to see the bug."
        )
