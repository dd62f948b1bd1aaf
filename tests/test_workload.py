"""A Workload says what is trained; a plan finds ours, and a user's needs three methods."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from memlab.catalog import MODELS
from memlab.plan import Plan, PlanError
from memlab.workload import Workload, prepare_model, workload_for

CUSTOM = Plan(model="custom")


class Words(Workload):
    """Whatever a Workload must have, and no more."""

    def __len__(self) -> int:
        return 6

    def build_model(self, plan: Plan) -> nn.Module:
        return nn.Linear(2, 3)

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        inputs = torch.tensor([[index, 1.0] for index in indices])
        return inputs, torch.tensor([-100 if index == 5 else index % 3 for index in indices])


@pytest.mark.parametrize(
    ("fields", "name", "samples"),
    [
        ({"model": "mlp"}, "digits", 1797),
        ({"model": "convnet"}, "digits", 1797),
        ({"model": "gpt-tiny"}, "text", None),
        ({"model": "gpt-small", "data": "ragged-text"}, "text", None),
    ],
)
def test_a_plan_finds_its_workload(fields: dict[str, Any], name: str, samples: int | None) -> None:
    plan = Plan(**fields)
    workload = workload_for(plan)
    model = prepare_model(workload, plan)

    assert workload.name == name
    assert len(workload) == (samples or len(workload)) > 1000
    assert workload.blocks(model) == list(model.blocks) != []


def test_a_file_of_the_learner_is_trained_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("to be or not to be", encoding="utf-8")

    workload = workload_for(Plan(data=f"file:{tmp_path / 'a.txt'}", sequence_length=5))

    assert bytes(workload.batch([1])[0][0].tolist()) == b" or n"


def test_the_loss_sum_adds_over_micro_batches_to_that_of_the_whole() -> None:
    plan = Plan(data="ragged-text", sequence_length=32)
    workload = workload_for(plan)
    torch.manual_seed(0)
    model = workload.build_model(plan).double()

    def sums(indices: Sequence[int]) -> tuple[float, int]:
        batch = workload.batch(indices)
        return workload.loss_sum(model, batch).item(), workload.count(batch)

    whole, parts = sums([3, 1, 8, 5]), [sums([3, 1]), sums([8, 5])]

    assert whole[1] == sum(count for _, count in parts)
    # float() rounds each logit to FP32; the rest is FP64
    assert whole[0] == pytest.approx(sum(loss for loss, _ in parts), rel=1e-6)


@pytest.mark.parametrize("data", ["text", "ragged-text"])
def test_the_count_is_the_labels_that_are_not_ignored(data: str) -> None:
    workload = workload_for(Plan(data=data))
    batch = workload.batch([0, 7, 9])

    assert workload.count(batch) == int((batch[1] != -100).sum())


@pytest.mark.parametrize("setting", ["fp32", "autocast", "bf16 weights"])
def test_the_loss_is_computed_in_fp32(setting: str) -> None:
    workload = Words()
    torch.manual_seed(0)
    model, batch = workload.build_model(CUSTOM), workload.batch(range(6))
    if setting == "bf16 weights":
        model, batch = model.bfloat16(), (batch[0].bfloat16(), batch[1])

    with torch.autocast("cpu", torch.bfloat16, enabled=setting == "autocast"):
        loss, logits = workload.loss_sum(model, batch), model(batch[0]).float()

    chosen = logits.log_softmax(-1)[range(5), batch[1][:5]]  # the sixth label is ignored
    assert loss.dtype == torch.float32 and loss.shape == ()
    torch.testing.assert_close(loss, -chosen.sum())


def test_a_whole_micro_batch_of_ignored_labels_has_a_loss_of_zero() -> None:
    workload = Words()
    batch = workload.batch([5])

    assert workload.count(batch) == 0
    assert workload.loss_sum(workload.build_model(CUSTOM), batch).item() == 0.0


def test_a_users_workload_needs_three_methods_and_has_a_name() -> None:
    workload = Words()
    model = prepare_model(workload, CUSTOM)

    assert (workload.name, workload.couples_samples, workload.blocks(model)) == ("Words", False, [])
    assert type(workload.build_optimizer(model.parameters(), CUSTOM)) is torch.optim.AdamW


def test_labels_that_are_no_classes_count_as_one_loss_a_sample() -> None:
    assert Words().count((torch.zeros(4, 2), torch.zeros(4, 7))) == 4


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ("__len__", "Words must define __len__(self), the number of samples in one epoch; "),
        ("build_model", "Words must define build_model(self, plan), which returns the nn.Module to train; "),
        (
            "batch",
            "Words must define batch(self, indices), which returns those samples as a tuple of tensors, "
            "the labels last; ",
        ),
    ],
)
def test_a_workload_that_lacks_a_method_says_which(missing: str, sentence: str) -> None:
    methods = {name: value for name, value in vars(Words).items() if callable(value) and name != missing}
    broken: Any = type("Words", (Workload,), methods)()
    call = {"__len__": lambda: len(broken), "build_model": lambda: broken.build_model(CUSTOM)}

    for use in (lambda: prepare_model(broken, CUSTOM), call.get(missing, lambda: broken.batch([0]))):
        with pytest.raises(PlanError) as caught:
            use()
        assert str(caught.value) == sentence + "help(memlab.Workload) shows how."


class Empty(Words):
    def __len__(self) -> int:
        return 0


class Modelless(Words):
    def build_model(self, plan: Plan) -> Any:
        return "gpt"


class Frozen(Words):
    def build_model(self, plan: Plan) -> nn.Module:
        return super().build_model(plan).requires_grad_(False)


class Lazy(Words):
    def build_model(self, plan: Plan) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 4), nn.LazyLinear(3))


class LazyNorm(Words):
    def build_model(self, plan: Plan) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 3), nn.LazyBatchNorm1d(affine=False))


LAZY = "has no shape before the first batch (a lazy module): run one through the model in "


@pytest.mark.parametrize(
    ("workload", "sentence"),
    [
        (Lazy(), f"1.weight of Sequential {LAZY}Lazy.build_model, then return it."),
        (LazyNorm(), f"1.running_mean of Sequential {LAZY}LazyNorm.build_model, then return it."),
        (Empty(), "Empty has no samples: its __len__ returned 0; give it one at least."),
        (
            Modelless(),
            "Modelless.build_model returned a value of type str; return the nn.Module to train.",
        ),
        (
            Frozen(),
            "Linear has no parameter that requires a gradient: there is nothing to train; "
            "set requires_grad on those that shall learn.",
        ),
    ],
)
def test_a_workload_with_nothing_to_train_says_so(workload: Workload, sentence: str) -> None:
    with pytest.raises(PlanError) as caught:
        prepare_model(workload, CUSTOM)

    assert str(caught.value) == sentence


def test_a_lazy_model_that_saw_a_batch_is_one_like_any_other() -> None:
    class Warm(Lazy):
        def build_model(self, plan: Plan) -> nn.Module:
            model = super().build_model(plan)
            model(self.batch([0])[0])
            return model

    assert [tuple(weight.shape) for weight in prepare_model(Warm(), CUSTOM).parameters()][2:] == [
        (3, 4),
        (3,),
    ]


def test_a_custom_model_without_a_workload_says_so() -> None:
    with pytest.raises(PlanError) as caught:
        workload_for(CUSTOM)

    assert str(caught.value) == (
        "model='custom' needs a Workload of yours: pass it as the second argument, as in train(plan, workload), "
        f"or choose one of our models: {', '.join(map(repr, MODELS))}."
    )


class Stack(Words):
    def build_model(self, plan: Plan) -> nn.Module:
        model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 3))
        model.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4))])
        return model


def test_adapters_are_put_on_a_users_model_and_only_once_on_ours() -> None:
    plans = {Plan(model="custom", lora_rank=2): Stack(), (ours := Plan(lora_rank=2)): workload_for(ours)}

    for plan, workload in plans.items():
        model = prepare_model(workload, plan)
        trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
        assert trained and all(name.endswith((".up", ".down")) for name in trained)
        assert not any("frozen.frozen" in name for name, _ in model.named_parameters())
