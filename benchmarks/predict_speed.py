"""How long a prediction takes, beside torch's own MemTracker on tensors without data.

    python benchmarks/predict_speed.py            # a few minutes; prints a table, and what it must reach
    python benchmarks/predict_speed.py --clock cpu

Each figure is the smallest of some rounds: other load on a machine only ever adds. The rounds of predictions and
of MemTracker alternate. MemTracker follows one micro-batch and one optimizer step, and no accumulation; a
prediction covers two steps of K micro-batches and the card's allocator. `--clock cpu` counts the process's
own time instead of the wall's.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

import memlab
from memlab import Plan
from memlab.catalog import MODELS
from memlab.units import MiB
from memlab.workload import workload_for

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
SEVEN = Plan(
    model="llama-7b",
    sequence_length=2048,
    micro_batch_size=1,
    gradient_accumulation_steps=8,
    precision="bf16-mixed",
    device="cpu",
)
SEVENTY = replace(SEVEN, model="llama-2-70b")
CARD = "a100-80gb"
DEPTHS = (32, 64, 128)
ACCUMULATION = (2, 8, 32)
ROUNDS = 3

seeds = iter(range(1_000_000))


def predicted(plan: Plan, card: str | None = CARD) -> Callable[[], object]:
    """Return what predicts `plan` anew: a seed of its own keeps the answer from being remembered."""
    return lambda: memlab.predict(replace(plan, seed=next(seeds)), card=card)


def tracked() -> None:
    """Let MemTracker follow one micro-batch of the 7B model and one optimizer step, on fake CPU tensors."""
    workload = workload_for(SEVEN)
    tokens, labels = workload.batch([0])
    with FakeTensorMode():
        model = workload.build_model(SEVEN)
        optimizer = workload.build_optimizer(model.parameters(), SEVEN)
        batch = tuple(torch.empty(t.shape, dtype=t.dtype) for t in (tokens, labels))
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            with torch.autocast("cpu", torch.bfloat16):
                loss = workload.loss_sum(model, batch)
            loss.backward()
            optimizer.step()


def quickest(clock: str, *works: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Return the least seconds that each of `works` took, in turn."""
    now = CLOCKS[clock]
    taken = [[] for _ in works]
    for _ in range(rounds):
        for seconds, work in zip(taken, works, strict=True):
            begin = now()
            work()
            seconds.append(now() - begin)
    return [min(seconds) for seconds in taken]


def with_layers(layers: int) -> Plan:
    """Return the 7B plan with another depth."""
    name = f"{layers} layers"
    MODELS[name] = replace(MODELS[SEVEN.model], layers=layers)
    return replace(SEVEN, model=name)


def memory_of_its_process() -> int:
    """Return the most bytes that a process held which predicts the 70B model and does nothing else."""
    subprocess.run([sys.executable, "-c", "import memlab; from memlab import Plan; memlab.predict("
                    f"Plan(**{SEVENTY.to_dict()!r}), card={CARD!r})"], check=True)  # fmt: skip
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def line(what: str, found: str, goal: str = "") -> None:
    """Print one row."""
    print(f"{what:<58}{found:>16}   {goal}")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    clock = parser.parse_args().clock
    begin = CLOCKS[clock]()
    predicted(Plan(device="cpu"), None)()
    line("first prediction of a process, torch imported before", f"{CLOCKS[clock]() - begin:.2f} s")
    predicted(SEVEN)()
    seven, peer = quickest(clock, predicted(SEVEN), tracked)
    line("llama-7b, K=8, bf16-mixed", f"{seven:.2f} s", "at most 1.5 s")
    line("MemTracker on one micro-batch of it", f"{peer:.2f} s")
    line("MemTracker / prediction", f"{peer / seven:.1f} x", "at least 10 x")
    line("llama-2-70b, 80 layers", f"{quickest(clock, predicted(SEVENTY))[0]:.2f} s", "at most 4 s")
    for layers, seconds in zip(
        DEPTHS, quickest(clock, *(predicted(with_layers(n)) for n in DEPTHS)), strict=True
    ):
        line(f"llama-7b with {layers} layers", f"{seconds:.2f} s", "linear, or less")
    plans = [replace(SEVEN, gradient_accumulation_steps=k) for k in ACCUMULATION]
    for plan, seconds in zip(plans, quickest(clock, *map(predicted, plans)), strict=True):
        line(f"llama-7b, K={plan.gradient_accumulation_steps}", f"{seconds:.2f} s", "flat")
    default = Plan(device="cpu")
    for card in (None, CARD):
        (seconds,) = quickest(clock, predicted(default, card), rounds=10)
        line(
            f"the default plan {'on the CPU' if card is None else 'for ' + card}",
            f"{seconds:.3f} s",
            "at most 0.15 s",
        )
    line(
        "memory of a process that predicts llama-2-70b",
        f"{memory_of_its_process() / MiB:.0f} MiB",
        "below 1536 MiB",
    )


if __name__ == "__main__":
    main()
