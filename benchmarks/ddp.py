"""Time per optimizer step on two ranks: memlab's four choices of when to exchange, a bare DDP loop, Accelerate.

    python benchmarks/ddp.py [--model gpt-tiny] [--ranks 2] [--accumulate 4] [--turns 20]

Starts its own ranks through torchrun (gloo on the CPU). All contestants train the same model on the same
samples in the same processes, and take turns step by step, so that other load on the machine falls on
all of them; ratios are of steps of one turn. Accelerate takes part where it is installed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from memlab.engine.torchrun import on_this_machine, ranks_environment
from memlab.plan import Plan
from memlab.training.loop import Trainer
from memlab.training.ranks import join
from memlab.training.window import Window, windows
from memlab.workload import prepare_model, workload_for

SYNCS = ("last-micro-step", "every-micro-step", "backward-only", "never")
Contestant = Callable[[Window], None]


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return the mean cross entropy of one micro-batch."""
    inputs, labels = batch
    return functional.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())


def bare(plan: Plan) -> Contestant:
    """Return the step that anybody writes by hand, with no_sync in the right place."""
    model = DistributedDataParallel(prepare_model(workload_for(plan), plan))
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.learning_rate)

    def step(window: Window) -> None:
        last = len(window.micro_batches) - 1
        for number, batch in enumerate(window.micro_batches):
            with nullcontext() if number == last else model.no_sync():
                loss = loss_of(model, batch) / len(window.micro_batches)
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return step


def accelerate(plan: Plan) -> Contestant:
    """Return the step of Accelerate's `accumulate`; raises ImportError where it is not installed."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=plan.gradient_accumulation_steps)
    model = prepare_model(workload_for(plan), plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.learning_rate)
    model, optimizer = accelerator.prepare(model, optimizer)

    def step(window: Window) -> None:
        for batch in window.micro_batches:
            with accelerator.accumulate(model):
                loss = loss_of(model, batch)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        loss.item()

    return step


def ours(plan: Plan) -> Contestant:
    """Return memlab's step, which also adds up the items and the loss of all ranks."""
    trainer = Trainer(plan)
    return lambda window: trainer.step(window) and None


def contestants(plan: Plan) -> dict[str, Contestant]:
    """Return all that can take part here."""
    fields = plan.to_dict()
    found = {sync: ours(Plan(**{**fields, "gradient_sync": sync})) for sync in SYNCS}
    found["bare DDP loop"] = bare(plan)
    try:
        found["Accelerate"] = accelerate(plan)
    except ImportError:
        pass
    return found


def one_rank(arguments: argparse.Namespace) -> None:
    """Take all turns as one rank; rank 0 prints."""
    plan = plan_of(arguments)
    leave = join(plan, torch.device("cpu"))
    racing = contestants(plan)
    data = list(islice(windows(workload_for(plan), plan, dist.get_rank()), arguments.turns + 3))
    turns = [{name: seconds(step, window) for name, step in racing.items()} for window in data][3:]
    if dist.get_rank() == 0:
        show(turns, arguments)
    leave()


def seconds(step: Contestant, window: Window) -> float:
    """Return how long one step took, begun by all ranks together."""
    dist.barrier()
    begin = time.perf_counter()
    step(window)
    return time.perf_counter() - begin


def show(turns: list[dict[str, float]], arguments: argparse.Namespace) -> None:
    """Print the median step of each, and its speed against the bare loop's step of the same turn."""
    print(
        f"{arguments.model}, {arguments.ranks} ranks, K={arguments.accumulate}, torch {torch.__version__}, gloo"
    )
    for name in turns[0]:
        speeds = [turn["bare DDP loop"] / turn[name] for turn in turns]
        took = median(turn[name] for turn in turns)
        print(f"{name:<20}{took * 1e3:9.1f} ms a step   {median(speeds):.3f} x the bare loop's speed")


def plan_of(arguments: argparse.Namespace) -> Plan:
    """Return what all train."""
    return Plan(
        model=arguments.model,
        micro_batch_size=arguments.micro_batch_size,
        gradient_accumulation_steps=arguments.accumulate,
        world_size=arguments.ranks,
        device="cpu",
    )


def main() -> None:
    """Start the ranks, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="gpt-tiny")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--micro-batch-size", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--turns", type=int, default=20)
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        one_rank(arguments)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        *command, _, _, _ = on_this_machine(folder, arguments.ranks)
        subprocess.run(
            [*command, __file__, *sys.argv[1:]],
            env=ranks_environment(folder, arguments.ranks, []),
            check=True,
        )


if __name__ == "__main__":
    main()
