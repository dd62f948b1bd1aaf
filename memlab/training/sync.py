"""How ranks agree: on the number of items in a window, and on its gradient."""

from contextlib import AbstractContextManager, nullcontext

from torch import nn

from memlab.plan import Plan, PlanError


class SingleRank:
    """One rank has nobody to agree with."""

    def context(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[object]:
        """Hold around forward and backward of one micro-step; gradients are exchanged in the last alone."""
        return nullcontext()

    def total(self, items: int) -> int:
        """Return the loss terms of the window over all ranks, given this rank's."""
        return items


def sync_for(plan: Plan) -> SingleRank:
    """Return how the ranks of `plan` agree."""
    if plan.world_size > 1:
        raise PlanError(
            f"world_size={plan.world_size} needs as many processes, and this one trains alone as its only rank; "
            f"set world_size=1 and gradient_accumulation_steps="
            f"{plan.gradient_accumulation_steps * plan.world_size} for the same global batch."
        )
    return SingleRank()
