"""DDP through the back end of a device: NCCL with one rank on a GPU, and the same test with gloo on the CPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from memlab import Plan
from memlab.training.data_parallel import Replicas
from memlab.training.loop import Trainer

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
STEPS = 2


@pytest.fixture
def alone_in_a_group(tmp_path: Path) -> Iterator[None]:
    device = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(device, init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trained(device: str, **fields: object) -> tuple[list[float], list[list[int]]]:
    """Return the losses of a plan, and the exchanges of each step by micro-step, on a group of one rank."""
    plan = Plan(model="mlp", micro_batch_size=2, gradient_accumulation_steps=3, device=device, **fields)
    trainer = Trainer(plan, sync=Replicas(plan, torch.device(device)))
    losses, calls = [], []
    for _ in range(STEPS):
        losses.append(trainer.step().loss)
        calls += [list(said.calls) for said in trainer.take_communication()]
    return losses, calls


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_one_rank_under_ddp_trains_as_one_rank_without(
    alone_in_a_group: None, device: str, precision: str
) -> None:
    plan = Plan(
        model="mlp",
        micro_batch_size=2,
        gradient_accumulation_steps=3,
        device=device,
        precision=precision,
    )
    alone = Trainer(plan)
    expected = [alone.step().loss for _ in range(STEPS)]

    losses, _ = trained(device, precision=precision)

    assert losses == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_only_the_last_micro_step_exchanges(alone_in_a_group: None, device: str) -> None:
    _, calls = trained(device)

    assert len(calls) == STEPS
    assert all(first == second == 0 < last for first, second, last in calls), calls
