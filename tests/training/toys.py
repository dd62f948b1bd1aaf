"""Workloads small enough to know every number of."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from memlab.plan import Plan
from memlab.training.loop import Trainer
from memlab.training.window import Window
from memlab.workload import Workload


class Line(nn.Module):
    """One weight: token losses are weight x value."""

    def __init__(self, start: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([start]))

    def forward(self, values: Tensor) -> Tensor:
        return self.weight * values


class Values(Workload):
    """Samples are values; each is the gradient that it gives Line's weight. NaN is an ignored label."""

    def __init__(self, values: Sequence[float], build: Callable[[], nn.Module] = Line) -> None:
        self.values = torch.tensor(values)
        self.build = build

    def __len__(self) -> int:
        return len(self.values)

    def build_model(self, plan: Plan) -> nn.Module:
        return self.build()

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        return (self.values[list(indices)],)

    def count(self, batch: tuple[Tensor, ...]) -> int:
        return int((~batch[0].isnan()).sum())

    def loss_sum(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return model(batch[0].nan_to_num(0.0, torch.inf, -torch.inf)).float().sum()


class Block(nn.Module):
    def __init__(self, width: int, dropout: float, norm: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(torch.tanh(self.norm(self.linear(x))))


class Tower(nn.Module):
    def __init__(self, layers: int, width: int, dropout: float, norm: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, dropout, norm) for _ in range(layers))
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Points(Workload):
    """64 random points in three classes, and a tower of blocks."""

    def __init__(
        self, samples: int = 64, *, layers: int = 4, norm: bool = False, offset: float = 0.0
    ) -> None:
        generator = torch.Generator().manual_seed(1)
        self.points = torch.randn(samples, 8, generator=generator) + offset
        self.labels = torch.randint(3, (samples,), generator=generator)
        self.layers, self.norm = layers, norm

    def __len__(self) -> int:
        return len(self.labels)

    def build_model(self, plan: Plan) -> nn.Module:
        return Tower(self.layers, 8, plan.dropout, self.norm)

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        return self.points[list(indices)], self.labels[list(indices)]


def custom(**fields: object) -> Plan:
    """Return a plan for a workload of ours: SGD at learning rate 1, so that an update is the gradient."""
    return Plan(**{"model": "custom", "optimizer": "sgd", "learning_rate": 1.0, **fields})


def window(workload: Workload, *micro_batches: Sequence[int]) -> Window:
    """Return a window of the samples with these numbers."""
    return Window.of(workload, [workload.batch(indices) for indices in micro_batches])


def gradients(plan: Plan, workload: Workload, steps: int = 1) -> list[Tensor]:
    """Return the gradients that the last of `steps` leaves; they stay until the next forward."""
    trainer = Trainer(plan, workload)
    for _ in range(steps):
        trainer.step()
    return [parameter.grad.clone() for parameter in trainer.model.parameters()]


def weights(plan: Plan, workload: Workload, steps: int = 1) -> list[Tensor]:
    """Return the weights after `steps`."""
    trainer = Trainer(plan, workload)
    for _ in range(steps):
        trainer.step()
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]
