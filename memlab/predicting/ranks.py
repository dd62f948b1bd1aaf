"""How the ranks of a plan agree where nobody but one rank is there, and that without data."""

import torch
from typing_extensions import assert_never

from memlab.plan import Plan
from memlab.training.sync import SingleRank


def dataless_sync_for(plan: Plan, device: torch.device) -> SingleRank:
    """Return what stands in for the other ranks of `plan`: what it makes, they would make it make."""
    if plan.world_size == 1:
        return SingleRank()
    from memlab.predicting import replicas  # torch.distributed takes a second

    match plan.data_parallel:
        case "ddp":
            return replicas.DatalessReplicas(plan)
        case "zero1":
            return replicas.DatalessSharedState(plan)
        case "fsdp2":
            from memlab.predicting import shared_weights  # another

            return shared_weights.DatalessSharedWeights(plan, device)
        case never:
            assert_never(never)
