"""BatchNorm's running statistics move as often, and by as much, as the plan says."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from toys import Points, custom, window

from memlab.plan import Plan, PlanError
from memlab.training.loop import Trainer


class Normed(Points):
    """BatchNorm alone, in front of a head."""

    def __init__(self, momentum: float | None = 0.1, shape: Sequence[int] = (8,)) -> None:
        super().__init__(offset=3.0)
        self.momentum, self.shape = momentum, shape

    def build_model(self, plan: Plan) -> nn.Module:
        kind = {1: nn.BatchNorm1d, 3: nn.BatchNorm2d, 4: nn.BatchNorm3d}[len(self.shape)]
        norm = kind(self.shape[0], momentum=self.momentum)
        return nn.Sequential(nn.Unflatten(1, self.shape), norm, nn.Flatten(), nn.Linear(8, 3))


def norm_after(trainer: Trainer, *micro_batches: Sequence[int]) -> nn.Module:
    trainer.step(window(trainer.workload, *micro_batches))
    return trainer.model[1]


def trainer(statistics: str, **fields: object) -> Trainer:
    return Trainer(custom(batch_norm_statistics=statistics), Normed(**fields))


def assert_equal(one: nn.Module, other: nn.Module) -> None:
    for found, expected in zip(one.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_torch_moves_them_with_every_micro_batch() -> None:
    found = norm_after(trainer("per-micro-batch"), range(8), range(8, 16), range(16, 20))

    assert found.num_batches_tracked == 3


def test_frozen_statistics_move_by_the_first_micro_batch_alone() -> None:
    found = norm_after(trainer("frozen"), range(8), range(8, 16), range(16, 20))

    assert_equal(found, norm_after(trainer("per-micro-batch"), range(8)))
    assert found.num_batches_tracked == 1 and found.track_running_stats


@pytest.mark.parametrize("shape", [(8,), (4, 1, 2), (2, 1, 2, 2)])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_accumulated_statistics_are_those_of_the_whole_window(shape: tuple, momentum: float | None) -> None:
    split, whole = (
        trainer(name, momentum=momentum, shape=shape) for name in ("accumulated", "per-micro-batch")
    )
    split._parts.optimizer.param_groups[0]["lr"] = whole._parts.optimizer.param_groups[0]["lr"] = 0.0

    for _ in range(3):
        found = norm_after(split, range(8), range(8, 16), range(16, 21))
        expected = norm_after(whole, range(21))

    assert_equal(found, expected)
    assert found.num_batches_tracked == 3


@pytest.mark.parametrize("statistics", ["frozen", "accumulated"])
def test_the_gradient_is_that_of_micro_batch_statistics(statistics: str) -> None:
    batches = (range(8), range(8, 16))
    found, expected = (norm_after(trainer(name), *batches) for name in (statistics, "per-micro-batch"))

    assert torch.equal(found.weight, expected.weight) and torch.equal(found.bias, expected.bias)


def test_a_closed_trainer_leaves_the_model_as_torch_made_it() -> None:
    used = trainer("accumulated")
    norm_after(used, range(8))
    used.close()

    norm = used.model[1]
    used.model(torch.randn(4, 8))
    assert not norm._forward_pre_hooks and norm.track_running_stats and norm.num_batches_tracked == 2


@pytest.mark.parametrize(
    ("statistics", "does"),
    [
        ("per-micro-batch", "moves its running statistics 4 times a step"),
        ("frozen", "moves its running statistics by the first micro-batch of each step"),
        ("accumulated", "moves its running statistics once a step"),
    ],
)
def test_accumulation_with_batch_norm_is_announced(statistics: str, does: str) -> None:
    plan = custom(micro_batch_size=8, gradient_accumulation_steps=4, batch_norm_statistics=statistics)

    (notice,) = Trainer(plan, Normed()).take_notices()

    assert notice.kind == "batch-norm" and notice.message == (
        f"BatchNorm normalises each micro-batch of 8 by itself and {does}, so accumulation does not compute "
        "what a batch of 32 would; batch_norm_statistics='frozen' or 'accumulated' moves them once a step, "
        "GroupNorm (norm='group') keeps samples apart, and under DDP SyncBatchNorm joins the ranks."
    )


@pytest.mark.parametrize("plan", [Plan(model="convnet"), Plan(model="mlp", gradient_accumulation_steps=2)])
def test_without_accumulation_or_batch_norm_nothing_is_announced(plan: Plan) -> None:
    assert Trainer(plan).take_notices() == []


def test_a_micro_batch_of_one_sample_is_explained() -> None:
    with pytest.raises(PlanError) as error:
        Trainer(custom(micro_batch_size=1), Normed()).step()

    assert str(error.value) == (
        "micro_batch_size=1 left BatchNorm a micro-batch of one sample (the tail of an epoch may be one), "
        "which has no variance to normalise by: choose a micro-batch size that leaves at least two, or "
        "another norm."
    )


def test_other_errors_of_a_model_pass_unchanged() -> None:
    class Broken(Normed):
        def loss_sum(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
            raise ValueError("mine")

    with pytest.raises(ValueError, match="^mine$"):
        Trainer(custom(), Broken()).step()
