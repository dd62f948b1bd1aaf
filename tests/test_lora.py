"""Low-rank adapters: how many weights they train, and that they change nothing else."""

import pytest
import torch
from torch import Tensor, nn

from memlab import optimizers
from memlab.models import MLP, apply_lora, build_model, has_lora
from memlab.plan import Plan, PlanError
from memlab.workload import workload_for


def built(plan: Plan) -> nn.Module:
    torch.manual_seed(plan.seed)
    return build_model(plan)


def loss_of(plan: Plan, model: nn.Module, samples: int = 4) -> Tensor:
    workload = workload_for(plan)
    return workload.loss_sum(model, workload.batch(range(samples)))


def sizes(model: nn.Module) -> tuple[int, int]:
    """Return the number of weights, and of those that are trained."""
    weights = list(model.parameters())
    return sum(w.numel() for w in weights), sum(w.numel() for w in weights if w.requires_grad)


@pytest.mark.parametrize("rank", [1, 4])
def test_adapters_add_rank_times_both_widths_of_each_matrix(rank: int) -> None:
    whole, _ = sizes(built(Plan()))
    d_model, layers = 192, 6
    # query-key-value, attention's projection, expansion, and the projection back
    widths = (1 + 3) + (1 + 1) + (1 + 4) + (4 + 1)

    weights, trained = sizes(built(Plan(lora_rank=rank)))

    assert trained == layers * rank * widths * d_model
    assert weights == whole + trained


def test_adapters_change_nothing_before_they_are_trained() -> None:
    plan = Plan()
    model = built(plan)
    before = loss_of(plan, model)

    apply_lora(model, 4)

    assert torch.equal(loss_of(plan, model), before)


def test_adapters_alone_are_trained() -> None:
    plan = Plan(lora_rank=4, optimizer="sgd", learning_rate=0.1)
    model = built(plan)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    trainable = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = optimizers.build(trainable, plan)

    for _ in range(2):  # A has no gradient while B is zero
        (loss_of(plan, model) / 512).backward()
        optimizer.step()

    moved = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    adapters = {name for name in before if name.endswith((".up", ".down"))}
    assert moved == adapters
    assert {name for name, weight in model.named_parameters() if weight.grad is not None} == adapters


def test_adapters_leave_stem_and_head_as_they_are() -> None:
    torch.manual_seed(0)
    model = MLP(pixels=64, pixel_range=16, features=32, layers=2, classes=10, norm="none", dropout=0.0)

    apply_lora(model, 2)

    assert has_lora(model)
    assert type(model.stem) is nn.Linear and type(model.head) is nn.Linear
    assert sizes(model)[1] == 2 * 2 * (32 + 32)


def test_adapters_without_a_matrix_to_stand_by_say_so() -> None:
    with pytest.raises(PlanError) as caught:
        apply_lora(built(Plan(model="convnet")), 4)

    assert str(caught.value) == (
        "lora_rank=4 needs nn.Linear layers inside model.blocks, and ConvNet has none; set lora_rank=0."
    )


def test_adapters_are_applied_once() -> None:
    with pytest.raises(PlanError) as caught:
        apply_lora(built(Plan(lora_rank=2)), 2)

    assert str(caught.value) == "GPT has low-rank adapters already: call apply_lora once."
