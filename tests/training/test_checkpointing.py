"""Checkpointing changes memory and time, never the gradient."""

from collections import Counter

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from toys import Block, Points, Tower, Values, custom, gradients

from memlab.plan import Plan, PlanError
from memlab.training.checkpointing import RecomputationError
from memlab.training.loop import Trainer

POLICIES = ["full", "every-2", "every-4", "selective"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "fp16-mixed", "bf16-true"])
def test_gradients_are_bit_equal_with_dropout(policy: str, precision: str) -> None:
    fields = {
        "precision": precision,
        "dropout": 0.5,
        "zero_grad": "before_forward",
        "gradient_accumulation_steps": 2,
        "learning_rate": 0.01,
        "initial_loss_scale": 256.0,
    }
    kept = gradients(custom(**fields), Points(), steps=2)
    recomputed = gradients(custom(activation_checkpointing=policy, **fields), Points(), steps=2)

    assert all(map(torch.equal, kept, recomputed))


@pytest.mark.parametrize("policy", ["full", "selective"])
def test_the_gpt_is_bit_equal_with_dropout(policy: str) -> None:
    plan = {"sequence_length": 16, "micro_batch_size": 2, "dropout": 0.1, "zero_grad": "before_forward"}
    kept, recomputed = (Trainer(Plan(activation_checkpointing=choice, **plan)) for choice in ("none", policy))
    assert kept.step().loss == recomputed.step().loss

    pairs = zip(kept.model.parameters(), recomputed.model.parameters(), strict=True)
    assert all(torch.equal(one.grad, other.grad) for one, other in pairs)


@pytest.mark.parametrize(
    ("policy", "expected"), [("none", 4), ("full", 8), ("every-2", 6), ("every-3", 5), ("selective", 8)]
)
def test_the_policy_says_how_many_blocks_run_twice(policy: str, expected: int) -> None:
    trainer = Trainer(custom(activation_checkpointing=policy), Points())
    runs = []
    for block in trainer.model.blocks:
        block.linear.register_forward_hook(lambda *_: runs.append(1))

    trainer.step()

    assert len(runs) == expected


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def operations(policy: str) -> Counter[str]:
    trainer = Trainer(custom(activation_checkpointing=policy), Points())
    with Counting() as counting:
        trainer.step()
    return counting.calls


def test_selective_recomputes_all_but_matrix_products() -> None:
    none, full, selective = (operations(policy) for policy in ("none", "full", "selective"))

    assert full["addmm"] == none["addmm"] + 4 and selective["addmm"] == none["addmm"]
    assert full["tanh"] == selective["tanh"] == none["tanh"] + 4


def test_names_and_classes_stay() -> None:
    model = Trainer(custom(activation_checkpointing="full"), Points()).model

    assert list(model.state_dict()) == list(Tower(4, 8, 0.0, False).state_dict())
    assert all(isinstance(block, Block) and type(block).__name__ == "Block" for block in model.blocks)


def test_blocks_learn_where_no_input_needs_a_gradient() -> None:
    found = gradients(custom(activation_checkpointing="full", zero_grad="before_forward"), Points())

    assert all(gradient.abs().sum() > 0 for gradient in found)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("statistics", ["per-micro-batch", "frozen", "accumulated"])
def test_running_statistics_do_not_move_twice(policy: str, statistics: str) -> None:
    fields = {"batch_norm_statistics": statistics, "gradient_accumulation_steps": 2, "learning_rate": 0.1}
    kept, recomputed = (
        Trainer(custom(activation_checkpointing=choice, **fields), Points(norm=True))
        for choice in ("none", policy)
    )
    for _ in range(3):
        assert kept.step().loss == recomputed.step().loss

    pairs = zip(kept.model.state_dict().values(), recomputed.model.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


class Fickle(nn.Module):
    """Computes another shape each time."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.calls = 0

    def forward(self, values: Tensor) -> Tensor:
        self.calls += 1
        return (self.weight * values.repeat(self.calls)).tanh()


class Moody(Values):
    def build_model(self, plan: Plan) -> nn.Module:
        return nn.Sequential(nn.Identity(), Fickle())

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        return [model[1]]


def test_a_block_that_computes_another_shape_is_named() -> None:
    with pytest.raises(RecomputationError) as error:
        Trainer(custom(activation_checkpointing="full"), Moody([1.0] * 8)).step()

    assert str(error.value) == (
        "Module '1' (Fickle) computed tensors of other shapes, or another number of them, when its forward ran "
        "again for activation checkpointing: make its forward depend on its inputs and torch's random state alone, or "
        "leave it out of Workload.blocks."
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_without_blocks_is_refused(policy: str) -> None:
    with pytest.raises(PlanError) as error:
        Trainer(custom(activation_checkpointing=policy), Values([1.0]))

    assert str(error.value) == (
        f"activation_checkpointing={policy!r} needs blocks to work on, and the workload names none: return "
        "them from Workload.blocks, or choose 'none'."
    )


def test_a_policy_that_reaches_no_block_is_refused() -> None:
    with pytest.raises(PlanError) as error:
        Trainer(custom(activation_checkpointing="every-5"), Points())

    assert str(error.value) == (
        "activation_checkpointing='every-5' recomputes no block of a model with 4; choose N of 4 or less."
    )
