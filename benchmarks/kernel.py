"""What the worker process costs its user: waiting after Run and Stop, and memory over many runs.

    python benchmarks/kernel.py [--runs 200]

Growth is read from /proc, so it is printed on Linux alone.
"""

import argparse
import os
import time
from pathlib import Path
from statistics import median

from memlab.engine.client import Worker
from memlab.events import Event, Failed, Finished, Started, StepFinished
from memlab.plan import Plan
from memlab.units import MiB

POLL_SECONDS = 0.005
SHORT = Plan(model="mlp", micro_batch_size=8, gradient_accumulation_steps=2, steps=5)
LONG_STEP = Plan(model="gpt-small", micro_batch_size=32, gradient_accumulation_steps=8)
SETTLING_RUNS = 20
"""Runs before growth is counted: caches and the allocator's arenas fill in the first ones."""


def seconds_until(worker: Worker, kind: type[Event]) -> float:
    """Return how long it takes until an event of `kind` is drained."""
    began = time.perf_counter()
    while True:
        for event in worker.events():
            if isinstance(event, kind):
                return time.perf_counter() - began
            if isinstance(event, Failed):
                raise SystemExit(event.message)
        time.sleep(POLL_SECONDS)


def seconds_to_first_point(worker: Worker, plan: Plan) -> float:
    """Return the seconds from Run to the first finished step, then end the run."""
    worker.run(plan)
    seconds = seconds_until(worker, StepFinished)
    worker.stop()
    seconds_until(worker, Finished)
    return seconds


def seconds_to_stop(worker: Worker, plan: Plan, after: float) -> float:
    """Return the seconds from Stop, `after` seconds into a step, to the end of the run."""
    worker.run(plan)
    seconds_until(worker, Started)
    time.sleep(after)
    worker.stop()
    return seconds_until(worker, Finished)


def resident_bytes(pid: int) -> int:
    """Return the memory that process `pid` holds now."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def growth(worker: Worker, runs: int) -> tuple[int, int]:
    """Return by how many bytes kernel and worker grow over `runs` runs."""
    for number in range(SETTLING_RUNS + runs):
        if number == SETTLING_RUNS:
            before = resident_bytes(os.getpid()), resident_bytes(worker.pid)
        worker.run(SHORT)
        seconds_until(worker, Finished)
    return resident_bytes(os.getpid()) - before[0], resident_bytes(worker.pid) - before[1]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    worker = Worker()
    began = time.perf_counter()
    worker.start()
    returned = time.perf_counter() - began
    worker.run(SHORT)
    cold = seconds_until(worker, StepFinished)
    seconds_until(worker, Finished)
    print(f"start() returns after                {returned * 1000:8.1f} ms")
    print(f"cold: from Run to the first point    {cold:8.2f} s")
    for plan in (SHORT, Plan()):
        points = median(seconds_to_first_point(worker, plan) for _ in range(10))
        print(f"warm: from Run to the first point    {points:8.2f} s   ({plan.model})")
    stops = median(seconds_to_stop(worker, LONG_STEP, after) for after in (0.3, 1.0, 2.0))
    print(f"from Stop to the end, inside a step  {stops:8.2f} s   ({LONG_STEP.model})")
    if Path("/proc/self/status").exists():
        kernel, process = growth(worker, runs)
        print(f"growth over {runs} runs: kernel {kernel / MiB:.1f} MiB, worker {process / MiB:.1f} MiB")
    worker.close()


if __name__ == "__main__":
    main()
