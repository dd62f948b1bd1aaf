"""Speed of memlab's loop against a bare one, Hugging Face Accelerate and Trainer, in samples per second.

    pip install -e ".[benchmarks]"
    python benchmarks/loop.py [--model gpt-tiny] [--steps 40] [--clock cpu]

All four train the same model with the same optimizer on the same samples, and take turns step by
step, so that other load on the machine falls on all of them; ratios are of steps of one turn.
`--clock cpu` counts the process's own time instead of the wall's, for a machine that is not quiet.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from statistics import median, quantiles
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import memlab
from memlab.events import StepFinished
from memlab.plan import Plan
from memlab.workload import Workload, workload_for

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
Turn = dict[str, float]
"""Seconds that each contestant took for one optimizer step."""


class SampleSet(torch.utils.data.Dataset):
    """An epoch's samples, ready in memory, one by one as a DataLoader takes them."""

    def __init__(self, workload: Workload, samples: int) -> None:
        self.inputs, self.labels = workload.batch(range(samples))

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"inputs": self.inputs[index], "labels": self.labels[index]}


class WithLoss(nn.Module):
    """A model that returns its loss, as Trainer wants it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": loss_of(self.model, inputs, labels)}


def loss_of(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross entropy."""
    return functional.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())


def model_and_optimizer(plan: Plan) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return the plan's model and optimizer."""
    torch.manual_seed(plan.seed)
    model = workload_for(plan).build_model(plan)
    return model, torch.optim.AdamW(model.parameters(), lr=plan.learning_rate)


def bare(plan: Plan, samples: SampleSet) -> Iterator[None]:
    """Train as one would by hand."""
    model, optimizer = model_and_optimizer(plan)
    order = torch.randperm(len(samples)).split(plan.micro_batch_size)
    for step in count():
        total = 0.0
        for micro_step in range(plan.gradient_accumulation_steps):
            chosen = order[(step * plan.gradient_accumulation_steps + micro_step) % (len(order) - 1)]
            loss = loss_of(model, samples.inputs[chosen], samples.labels[chosen])
            loss = loss / plan.gradient_accumulation_steps
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        yield


def ours(plan: Plan, samples: SampleSet) -> Iterator[None]:
    """Train with memlab."""
    return (None for event in memlab.train(plan) if isinstance(event, StepFinished))


def accelerate(plan: Plan, samples: SampleSet) -> Iterator[None]:
    """Train with Accelerate's `accumulate`."""
    from accelerate import Accelerator

    accelerator = Accelerator(
        cpu=plan.device == "cpu", gradient_accumulation_steps=plan.gradient_accumulation_steps
    )
    loader = torch.utils.data.DataLoader(samples, plan.micro_batch_size, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(*model_and_optimizer(plan), loader)
    while True:
        for batch in loader:
            with accelerator.accumulate(model):
                loss = loss_of(model, batch["inputs"], batch["labels"])
                accelerator.backward(loss)
                loss.item()
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                yield


def hugging_face_trainer(plan: Plan, samples: SampleSet, after_step: Callable[[], None]) -> None:
    """Train with Hugging Face's Trainer, which calls `after_step`."""
    import transformers

    class Turns(transformers.TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            after_step()

    model, optimizer = model_and_optimizer(plan)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = transformers.Trainer(
            WithLoss(model),
            trainer_arguments(plan, folder),
            train_dataset=samples,
            callbacks=[Turns()],
            optimizers=(optimizer, scheduler),
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()


def trainer_arguments(plan: Plan, folder: str) -> Any:
    """Return Trainer's settings for `plan`: nothing but training."""
    import transformers

    return transformers.TrainingArguments(
        output_dir=folder,
        max_steps=plan.steps,
        per_device_train_batch_size=plan.micro_batch_size,
        gradient_accumulation_steps=plan.gradient_accumulation_steps,
        use_cpu=plan.device == "cpu",
        max_grad_norm=0.0,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )


def turns(plan: Plan, clock: Callable[[], float]) -> list[Turn]:
    """Return the seconds of each turn after the first; Trainer leads, the others follow its steps."""
    workload = workload_for(plan)
    samples = SampleSet(workload, min(len(workload), 2000))
    others = {name: loop(plan, samples) for name, loop in LOOPS.items()}
    seen: list[Turn] = []
    began = 0.0

    def after_step() -> None:
        nonlocal began
        turn = {"Trainer": clock() - began}
        for name, loop in others.items():
            began = clock()
            next(loop)
            turn[name] = clock() - began
        seen.append(turn)
        began = clock()

    hugging_face_trainer(plan, samples, after_step)
    return seen[1:]


LOOPS = {"bare loop": bare, "memlab.train": ours, "Accelerate": accelerate}


def main() -> None:
    """Print speeds and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="gpt-tiny")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)  # threads that wait for one another measure the machine's other load
    plan = Plan(
        model=options.model,
        micro_batch_size=4,
        gradient_accumulation_steps=4,
        steps=options.steps,
        device="cpu",
    )
    seen = turns(plan, CLOCKS[options.clock])
    print(
        f"{plan.model}, micro-batch {plan.micro_batch_size} x K {plan.gradient_accumulation_steps}, "
        f"one thread, {options.clock} time, medians of {len(seen)} steps"
    )
    print(f"{'':<14}{'samples/s':>10}{'of bare':>10}   quartiles")
    for name in (*LOOPS, "Trainer"):
        low, middle, high = quantiles((turn["bare loop"] / turn[name] for turn in seen), n=4)
        speed = plan.global_batch_size / median(turn[name] for turn in seen)
        print(f"{name:<14}{speed:>10.1f}{middle:>10.3f}   {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
