"""Optimizers by name, and torch's ways to update."""

from typing import Any

import pytest
import torch
from torch import nn

from memlab import optimizers
from memlab.plan import Plan


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_optimizers_switches_reach_torch(optimizer: Any, foreach: bool | None) -> None:
    weight = nn.Parameter(torch.ones(3))
    plan = Plan(optimizer=optimizer, foreach=foreach, learning_rate=0.5)

    built = optimizers.build([weight], plan)

    assert (built.defaults["foreach"], built.defaults["fused"], built.defaults["lr"]) == (foreach, None, 0.5)


@pytest.mark.parametrize("fields", [{"optimizer": "sgd", "momentum": 0.9}, {"optimizer": "adamw"}])
def test_all_ways_to_update_give_the_same_weights(fields: dict[str, Any]) -> None:
    results = []
    for way in ({}, {"foreach": True}, {"fused": True}):
        weight = nn.Parameter(torch.linspace(-1, 1, 7))
        optimizer = optimizers.build([weight], Plan(learning_rate=0.1, **fields, **way))
        for _ in range(3):
            optimizer.zero_grad()
            weight.square().sum().backward()
            optimizer.step()
        results.append(weight.detach())

    for result in results[1:]:
        torch.testing.assert_close(result, results[0])  # the kernels round in different orders


def test_momentum_reaches_sgd() -> None:
    plan = Plan(optimizer="sgd", momentum=0.9)

    assert optimizers.build([nn.Parameter(torch.ones(1))], plan).defaults["momentum"] == 0.9
