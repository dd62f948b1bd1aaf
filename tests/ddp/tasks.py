"""What tests ask of ranks; the same functions answer in one process. Answers hold numbers, text and tensors."""

import os
from contextlib import closing
from typing import Any

import torch
from torch import Tensor, nn

from memlab.events import StepCommunication, StepFinished
from memlab.memory.meter import Meter
from memlab.plan import Plan, PlanError
from memlab.training.loop import Trainer, train
from memlab.workload import Workload
from tests.training.toys import Points, Values, custom, window


class Tokens(Values):
    """Sample n holds some tokens; NaN fills its row up."""

    def __init__(self, rows: list[list[float]]) -> None:
        longest = max(map(len, rows))
        super().__init__([row + [float("nan")] * (longest - len(row)) for row in rows])


class Unused(nn.Module):
    """A model with a weight that its forward leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.forgotten = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


class UnusedPoints(Points):
    def build_model(self, plan: Plan) -> nn.Module:
        return Unused()


def workload(name: str | None, samples: int) -> Workload | None:
    return {"points": Points(samples, layers=2), "unused": UnusedPoints(samples)}[name] if name else None


def full(tensor: Tensor) -> Tensor:
    """Return all of a tensor of which FSDP2 gave this rank a share."""
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def trained(
    fields: dict[str, Any], name: str | None = "points", samples: int = 64, steps: int = 1
) -> dict[str, Any]:
    """Return loss, norm, gradients and weights after some steps; the gradients stay until the next forward."""
    plan = custom(**fields) if name else Plan(**fields)
    with closing(Trainer(plan, workload(name, samples))) as trainer:
        events = [(trainer.step(), trainer.take_communication()) for _ in range(steps)]
        parameters = list(trainer.model.parameters())
        return {
            "losses": [event.loss for event, _ in events],
            "items": [event.items for event, _ in events],
            "norms": [event.gradient_norm for event, _ in events],
            "gradients": [full(parameter.grad) for parameter in parameters if parameter.grad is not None],
            "weights": [full(parameter) for parameter in parameters],
            "calls": [list(one.calls) for _, said in events for one in said],
        }


def tokens(rows: list[list[float]]) -> dict[str, Any]:
    """Return loss and gradient where row n holds the tokens of rank n."""
    mine = int(os.environ["RANK"])
    data = Tokens(rows)
    plan = custom(world_size=len(rows), micro_batch_size=1, zero_grad="before_forward")
    with closing(Trainer(plan, data)) as trainer:
        finished = trainer.step(window(data, [mine]))
        return {"loss": finished.loss, "items": finished.items, "gradient": trainer.model.weight.grad.item()}


def overflow(bad_rank: int, world_size: int) -> list[Any]:
    """Return whether the step was skipped, and the scales of two steps, where one rank's gradient is infinite."""
    data = Values([1.0, float("inf")])
    mine = [1] if int(os.environ["RANK"]) == bad_rank else [0]
    plan = custom(world_size=world_size, micro_batch_size=1, precision="fp16-mixed")
    with closing(Trainer(plan, data)) as trainer:
        finished = [trainer.step(window(data, mine)), trainer.step(window(data, [0]))]
        return [[event.skipped for event in finished], [event.loss_scale for event in finished]]


def exchanged(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what this rank exchanged in each step."""
    said = [event for event in train(Plan(**fields)) if isinstance(event, StepCommunication)]
    names = (
        *("calls", "bytes", "gathers", "gathered_bytes", "buckets", "rebuilt", "checksum", "seconds"),
        *("all_reduces", "all_gathers", "reduce_scatters"),
    )
    return [{name: getattr(event, name) for name in names} for event in said]


def metered(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the peak and the end of each step by category, on this rank."""
    meter, steps = Meter(), []
    for event in train(Plan(**fields), meter=meter):
        if isinstance(event, StepFinished):
            trace = meter.last_step
            phases = {name: dict(peak) for name, peak in trace.peaks_by_phase().items()}
            steps.append({"peak": dict(trace.peak), "total": trace.peak.total, "phases": phases})
    return steps


def refused(fields: dict[str, Any], name: str | None = None) -> str:
    """Return the sentence of the PlanError that two steps end with."""
    try:
        trained(fields, name, steps=2)
    except PlanError as error:
        return str(error)
    return "nothing was refused"


def masks(fields: dict[str, Any]) -> list[float]:
    """Return the losses of two runs' first steps, each on the same samples for every rank."""
    plan, data = custom(**fields), Points(64, layers=2)
    with closing(Trainer(plan, data)) as trainer:
        batch = data.batch(range(8))
        torch.manual_seed(0)
        with trainer._random:
            return trainer.model(batch[0]).detach().flatten()[:4].tolist()
