"""A plan's own training with fewer blocks: blocks are alike, so a few tell what many do."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from memlab.catalog import MODELS
from memlab.data import Batch
from memlab.models import build_model
from memlab.plan import Plan
from memlab.workload import Workload, workload_for

DEPTHS = (2, 3)
"""Blocks that are tried: the first and the last may differ from those between, so the third is one of these."""


DEEP = 8
"""Blocks up to which all of them are counted as quickly."""


def may_be_shallow(plan: Plan) -> bool:
    """Say whether every block but the first and the last of `plan`'s model does the same."""
    card = MODELS[plan.model]
    alike = plan.activation_checkpointing in ("none", "full", "selective")
    return alike and card.family != "resnet" and card.layers > DEEP


def as_custom(plan: Plan) -> Plan:
    """Return `plan` for the training loop, which takes a Workload of one's own with model="custom" alone."""
    return replace(plan, model="custom", data="custom", loss_chunks=1)  # the Workload cuts its loss itself


class Shallow(Workload):
    """The plan's own workload, its model with `layers` blocks."""

    def __init__(self, plan: Plan, layers: int) -> None:
        self._inner, self._plan, self._layers = workload_for(plan), plan, layers

    def __len__(self) -> int:
        return len(self._inner)

    def build_model(self, plan: Plan) -> nn.Module:
        """Return the plan's model, less deep."""
        return build_model(self._plan, layers=self._layers)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the samples `indices`."""
        return self._inner.batch(indices)

    def count(self, batch: Batch) -> int:
        """Return how many losses there are in it."""
        return self._inner.count(batch)

    def loss_sum(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the sum of the losses."""
        return self._inner.loss_sum(model, batch)
