"""BF16 weights and their FP32 companions: real bytes, real rounding."""

from itertools import product

import pytest
import torch
from toys import Line, Points, Values, custom, weights, window

from memlab.training.loop import Trainer

CHOICES = {
    8: {},
    12: {"optimizer_state_precision": "fp32"},
    16: {"master_weights": True},
    18: {"master_weights": True, "gradient_precision": "fp32"},
    20: {"master_weights": True, "gradient_precision": "bf16+fp32"},
}
ALL = [
    {"master_weights": master, "gradient_precision": gradient, "optimizer_state_precision": state}
    for master, gradient, state in product([False, True], [None, "fp32", "bf16+fp32"], [None, "fp32"])
]


def bf16(**fields: object) -> dict[str, object]:
    return {"precision": "bf16-true", "optimizer": "adamw", "learning_rate": 1e-3, **fields}


def held_bytes(trainer: Trainer) -> int:
    """Return the bytes of weights, their owners, gradients and moments, each storage once."""
    owners = [weight for group in trainer.optimizer.param_groups for weight in group["params"]]
    tensors = [*trainer.model.parameters(), *owners]
    tensors += [tensor.grad for tensor in tensors if tensor.grad is not None]
    tensors += [
        value for state in trainer.optimizer.state.values() for key, value in state.items() if key != "step"
    ]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


@pytest.mark.parametrize("expected", CHOICES)
def test_bytes_per_parameter_with_adamw(expected: int) -> None:
    plan = custom(**bf16(**CHOICES[expected], zero_grad="before_forward"))
    trainer = Trainer(plan, Points())
    trainer.step()

    assert held_bytes(trainer) / trainer.started.parameters == expected


@pytest.mark.parametrize("choice", ALL, ids=str)
@pytest.mark.parametrize("when", ["before_forward", "before_backward", "in_place"])
def test_every_choice_learns_the_same_wherever_gradients_are_zeroed(choice: dict, when: str) -> None:
    fields = bf16(**choice, micro_batch_size=8, gradient_accumulation_steps=2, clip_norm=0.5, warmup_steps=2)

    expected = weights(custom(**fields), Points(), steps=5)
    found = weights(custom(**fields, zero_grad=when), Points(), steps=5)

    assert all(map(torch.equal, expected, found))
    assert all(weight.dtype == torch.bfloat16 and weight.isfinite().all() for weight in found)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"precision": "bf16-true"}, 1.0),
        ({"precision": "bf16-true", "optimizer_state_precision": "fp32"}, 1.0),
        ({"precision": "bf16-true", "master_weights": True}, 0.9899),
        ({"precision": "fp32"}, 0.9899),
    ],
)
def test_bf16_weights_swallow_what_a_master_copy_keeps(fields: dict, expected: float) -> None:
    # torch's AdamW decays the weight by 1e-5 a step on top of ten updates of 1e-3: 0.9899.
    trainer = Trainer(custom(optimizer="adamw", learning_rate=1e-3, **fields), Values([1.0] * 8))
    for _ in range(10):
        trainer.step()

    owner = trainer.optimizer.param_groups[0]["params"][0]
    assert round(owner.item(), 4) == expected
    weight = trainer.model.weight
    assert torch.equal(weight, owner.to(weight.dtype))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [(None, 1.0), ("bf16", 1.0), ("fp32", 1.0 + 4 * 2.0**-9), ("bf16+fp32", 1.0 + 4 * 2.0**-9)],
)
@pytest.mark.parametrize("master", [False, True])
def test_fp32_sums_keep_gradients_that_bf16_sums_swallow(choice: str, expected: float, master: bool) -> None:
    workload = Values([5.0] + [5 * 2.0**-9] * 4)
    plan = custom(precision="bf16-true", gradient_precision=choice, master_weights=master, clip_norm=100.0)
    finished = Trainer(plan, workload).step(window(workload, *([n] for n in range(5))))

    assert finished.gradient_norm == pytest.approx(expected, rel=2.0**-8 if expected == 1.0 else 1e-6)
    assert (finished.gradient_norm > 1.0 + 2.0**-8) == (expected > 1.0)


def test_bf16_and_fp32_sums_stand_side_by_side() -> None:
    plan = custom(
        **bf16(gradient_precision="bf16+fp32", zero_grad="before_forward", gradient_accumulation_steps=2)
    )
    trainer = Trainer(plan, Points())
    trainer.step()
    owners = trainer.optimizer.param_groups[0]["params"]

    for weight, owner in zip(trainer.model.parameters(), owners, strict=True):
        assert (weight.grad.dtype, owner.grad.dtype) == (torch.bfloat16, torch.float32)
        torch.testing.assert_close(weight.grad.float(), owner.grad, rtol=2.0**-7, atol=1e-4)


@pytest.mark.parametrize("choice", ALL, ids=str)
def test_clipping_limits_the_gradient_that_is_used(choice: dict) -> None:
    plan = custom(precision="bf16-true", clip_norm=0.5, **choice)
    trainer = Trainer(plan, Values([4.0] * 8))

    assert trainer.step().gradient_norm == 4.0
    assert trainer.model.weight.item() == 0.5


def test_a_master_copy_is_updated_as_fp32_weights_would_be_by_the_same_gradients() -> None:
    trainer = Trainer(custom(**bf16(master_weights=True)), Values([1.0] * 8, lambda: Line(1 / 3)))
    trainer.step()
    weight = torch.nn.Parameter(torch.tensor([1 / 3]))
    weight.grad = torch.ones(1)
    torch.optim.AdamW([weight], lr=1e-3).step()

    assert torch.equal(trainer.optimizer.param_groups[0]["params"][0], weight)


def test_frozen_weights_have_neither_owner_nor_gradient() -> None:
    class Half(Points):
        def build_model(self, plan: object) -> torch.nn.Module:
            model = super().build_model(plan)
            model.blocks.requires_grad_(False)
            return model

    trainer = Trainer(custom(**bf16(master_weights=True, zero_grad="before_forward")), Half())
    before = [weight.clone() for weight in trainer.model.blocks.parameters()]
    trainer.step()

    assert len(trainer.optimizer.param_groups[0]["params"]) == 2
    assert all(map(torch.equal, before, trainer.model.blocks.parameters()))
