"""Speed of memlab's loop against a bare one, Hugging Face Accelerate and Trainer, in samples per second.

    pip install -e ".[benchmarks]"
    python benchmarks/loop.py [--model gpt-tiny] [--repetitions 7] [--steps 12] [--clock cpu]

All four train the same model with the same optimizer on the same samples, in turns; a repetition
compares runs that follow one another, so that other load on the machine falls on all of them.
`--clock cpu` counts the process's own time instead of the wall's, for a machine that is not quiet.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional

import memlab
from memlab.events import StepFinished
from memlab.plan import Plan
from memlab.workload import Workload, workload_for

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
now = time.perf_counter
Stamps = list[float]
"""Times at which optimizer steps ended, in seconds."""


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


def bare(plan: Plan, samples: SampleSet) -> Stamps:
    """Train as one would by hand."""
    model, optimizer = model_and_optimizer(plan)
    order = torch.randperm(len(samples)).split(plan.micro_batch_size)
    stamps = []
    for step in range(plan.steps):
        total = 0.0
        for micro_step in range(plan.gradient_accumulation_steps):
            chosen = order[(step * plan.gradient_accumulation_steps + micro_step) % (len(order) - 1)]
            loss = loss_of(model, samples.inputs[chosen], samples.labels[chosen])
            loss = loss / plan.gradient_accumulation_steps
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        stamps.append(now())
    return stamps


def ours(plan: Plan, samples: SampleSet) -> Stamps:
    """Train with memlab."""
    return [now() for event in memlab.train(plan) if isinstance(event, StepFinished)]


def accelerate(plan: Plan, samples: SampleSet) -> Stamps:
    """Train with Accelerate's `accumulate`."""
    from accelerate import Accelerator

    accelerator = Accelerator(
        cpu=plan.device == "cpu", gradient_accumulation_steps=plan.gradient_accumulation_steps
    )
    loader = torch.utils.data.DataLoader(samples, plan.micro_batch_size, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(*model_and_optimizer(plan), loader)
    stamps: Stamps = []
    while True:
        for batch in loader:
            with accelerator.accumulate(model):
                loss = loss_of(model, batch["inputs"], batch["labels"])
                accelerator.backward(loss)
                loss.item()
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                stamps.append(now())
            if len(stamps) == plan.steps:
                return stamps


def hugging_face_trainer(plan: Plan, samples: SampleSet) -> Stamps:
    """Train with Hugging Face's Trainer."""
    import transformers

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            stamps.append(now())

    stamps: Stamps = []
    model, optimizer = model_and_optimizer(plan)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
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
        scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
        trainer = transformers.Trainer(
            WithLoss(model),
            arguments,
            train_dataset=samples,
            callbacks=[Clock()],
            optimizers=(optimizer, scheduler),
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return stamps


CONTESTANTS: dict[str, Callable[[Plan, SampleSet], Stamps]] = {
    "bare loop": bare,
    "memlab.train": ours,
    "Accelerate": accelerate,
    "Trainer": hugging_face_trainer,
}


def samples_per_second(plan: Plan, stamps: Stamps) -> float:
    """Return the speed of the median step after the first."""
    return plan.global_batch_size / median(b - a for a, b in zip(stamps[:-1], stamps[1:], strict=True))


def repetitions(plan: Plan, number: int) -> Iterator[dict[str, float]]:
    """Yield the speed of each contestant, `number` times; the order turns around each time."""
    workload = workload_for(plan)
    samples = SampleSet(workload, min(len(workload), 2000))
    for repetition in range(number):
        names = list(CONTESTANTS)[:: 1 if repetition % 2 else -1]
        yield {name: samples_per_second(plan, CONTESTANTS[name](plan, samples)) for name in names}


def main() -> None:
    """Print speeds and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="gpt-tiny")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    global now
    now = CLOCKS[options.clock]
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)  # threads that wait for one another measure the machine's other load
    plan = Plan(
        model=options.model,
        micro_batch_size=4,
        gradient_accumulation_steps=4,
        steps=options.steps,
        device="cpu",
    )
    speeds = list(repetitions(plan, options.repetitions))
    print(
        f"{plan.model}, micro-batch {plan.micro_batch_size} x K {plan.gradient_accumulation_steps}, one thread, {options.clock} time"
    )
    print(f"{'':<14}{'samples/s':>10}{'of bare':>10}   (medians of {len(speeds)}; range of the ratio)")
    for name in CONTESTANTS:
        ratios = sorted(speed[name] / speed["bare loop"] for speed in speeds)
        speed = median(speed[name] for speed in speeds)
        print(f"{name:<14}{speed:>10.1f}{median(ratios):>10.3f}   ({ratios[0]:.3f} to {ratios[-1]:.3f})")


if __name__ == "__main__":
    main()
