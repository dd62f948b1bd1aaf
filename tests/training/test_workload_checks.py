"""What a Workload hands over wrongly is said in words, with the method that did it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from toys import Values, custom

from memlab.engine.predict import predict
from memlab.plan import Plan, PlanError
from memlab.training.loop import train
from memlab.training.window import Window
from memlab.workload import Workload

A_BATCH = (
    "return a tuple of tensors with the labels last, as in `return x, y`, or `return (x,)` without labels."
)
A_LOSS = (
    "return the sum of the losses, a tensor of shape () that depends on the model's weights, as in `.sum()`"
)
UNTRACKED = f"{A_LOSS}, without .item(), .detach() or torch.no_grad() on the way."


class Batches(Values):
    """Turns its batch into something else."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__([1.0] * 4)
        self.change = change

    def batch(self, indices: Sequence[int]) -> Any:
        return self.change(super().batch(indices)[0])


class Losses(Values):
    """Turns its losses into something else."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__([1.0] * 4)
        self.change = change

    def loss_sum(self, model: torch.nn.Module, batch: tuple[Tensor, ...]) -> Any:
        return self.change(model(batch[0]))


WRONG: list[tuple[Workload, str]] = [
    (Batches(lambda x: x), f"Batches.batch returned a value of type Tensor; {A_BATCH}"),
    (Batches(lambda x: {"x": x}), f"Batches.batch returned a value of type dict; {A_BATCH}"),
    (Batches(lambda x: ()), f"Batches.batch returned an empty tuple; {A_BATCH}"),
    (
        Batches(lambda x: (x, x.numpy())),
        f"Batches.batch returned a tuple that holds a value of type ndarray; {A_BATCH}",
    ),
    (Losses(lambda x: 1.5), f"Losses.loss_sum returned a value of type float; {A_LOSS}."),
    (Losses(lambda x: x), f"Losses.loss_sum returned a tensor of shape (4,); {A_LOSS}."),
    (Losses(lambda x: x[:1]), f"Losses.loss_sum returned a tensor of shape (1,); {A_LOSS}."),
    (
        Losses(lambda x: x.sum().detach()),
        f"Losses.loss_sum returned a tensor that requires no gradient; {UNTRACKED}",
    ),
]


def trained(plan: Plan, workload: Workload) -> None:
    list(train(plan, workload))


def predicted(plan: Plan, workload: Workload) -> None:
    predict(plan, workload=workload)


@pytest.mark.parametrize("use", [trained, predicted])
@pytest.mark.parametrize(("workload", "sentence"), WRONG, ids=range(len(WRONG)))
def test_what_cannot_be_trained_on_names_the_method_and_what_it_must_return(
    workload: Workload, sentence: str, use: Callable[[Plan, Workload], None]
) -> None:
    with pytest.raises(PlanError) as caught:
        use(custom(), workload)

    assert str(caught.value) == sentence


def test_a_list_of_tensors_is_a_batch_too() -> None:
    lists, tuples = Batches(lambda x: [x]), Batches(lambda x: (x,))

    assert [event for event in train(custom(steps=1), lists)][-1].loss == 1.0
    assert type(Window.of(lists, [lists.batch([0])]).micro_batches[0]) is tuple
    assert Window.of(lists, [lists.batch([0])]).items == Window.of(tuples, [tuples.batch([0])]).items
