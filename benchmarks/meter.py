"""What metering costs: one training step bare, under a mode that does nothing, and under three meters.

    python benchmarks/meter.py            # about ten minutes; prints a table

The steps are taken in turn (bare, nothing, memlab, MemTracker, torch.profiler, bare, ...), so that a
noisy neighbour meets all of them alike; each figure is the median over the rounds of
(step under the meter) / (bare step of the same round). What one of them leaves for Python's garbage
collector is collected before the next one's turn.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch.distributed._tools.mem_tracker import MemTracker
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from memlab import Plan
from memlab.memory.meter import Meter
from memlab.training.loop import Trainer

STEPS = {
    # name: (plan fields, rounds); sized on two cores of 2026
    "mlp, about 1 ms": ({"model": "mlp", "micro_batch_size": 8, "optimizer": "sgd"}, 200),
    "gpt, about 50 ms": ({"model": "gpt-tiny", "micro_batch_size": 2, "sequence_length": 128}, 40),
    "gpt, 0.5 to 1 s": ({"model": "gpt-small", "micro_batch_size": 2, "sequence_length": 256}, 12),
}


class Nothing(TorchDispatchMode):
    """The least that any dispatch mode costs."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Contender:
    """One way to run a step: the same Trainer, with something around each step."""

    def __init__(self, plan: Plan, around: Callable[[Trainer], AbstractContextManager], meter=None) -> None:
        self.trainer = Trainer(plan, meter=meter) if meter else Trainer(plan)
        self.around = around
        self.operations = 0

    def seconds(self) -> float:
        gc.collect()
        begin = time.perf_counter()
        with self.around(self.trainer):
            self.trainer.step()
        return time.perf_counter() - begin


def memtracker() -> Callable[[Trainer], AbstractContextManager]:
    trackers: dict[int, MemTracker] = {}

    @contextmanager
    def around(trainer: Trainer) -> Iterator[None]:
        if id(trainer) not in trackers:
            tracker = trackers[id(trainer)] = MemTracker()
            tracker.track_external(trainer.model, trainer.optimizer)
        tracker = trackers[id(trainer)]
        tracker.reset_mod_stats()
        with tracker:
            yield

    return around


def profiler(trainer: Trainer) -> AbstractContextManager:
    return profile(activities=[ProfilerActivity.CPU], profile_memory=True)


def contenders(plan: Plan) -> dict[str, Contender]:
    return {
        "bare": Contender(plan, lambda trainer: nullcontext()),
        "a mode that does nothing": Contender(plan, lambda trainer: Nothing()),
        "memlab.Meter": Contender(plan, lambda trainer: nullcontext(), Meter(keep="selected")),
        "MemTracker": Contender(plan, memtracker()),
        "torch.profiler": Contender(plan, profiler),
    }


def operations(plan: Plan) -> int:
    class Count(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Count.seen += 1
            return func(*args, **(kwargs or {}))

    trainer = Trainer(plan)
    trainer.step()
    with Count():
        trainer.step()
    return Count.seen


def measure(name: str, rounds: int) -> None:
    plan = Plan(**STEPS[name][0], steps=10_000, device="cpu")
    racing = contenders(plan)
    for contender in racing.values():
        contender.seconds()
        contender.seconds()
    times: dict[str, list[float]] = {label: [] for label in racing}
    for _ in range(rounds):
        for label, contender in racing.items():
            times[label].append(contender.seconds())
    print(f"\n{name}: bare {statistics.median(times['bare']) * 1e3:.2f} ms, {operations(plan)} operations")
    overheads = {}
    for label, seconds in times.items():
        ratios = [own / bare for own, bare in zip(seconds, times["bare"], strict=True)]
        overheads[label] = statistics.median(ratios) - 1
        print(f"  {label:26} {statistics.median(ratios):6.2f} x bare")
    ours = overheads["memlab.Meter"]
    print(f"  memlab's overhead is {ours / overheads['a mode that does nothing']:.2f} x that of such a mode,")
    print(f"  and MemTracker's {overheads['MemTracker'] / ours:.1f} x memlab's")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, help="steps of each kind (default: by the step's length)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.threads} threads")
    for name, (_, rounds) in STEPS.items():
        measure(name, arguments.rounds or rounds)


if __name__ == "__main__":
    main()
