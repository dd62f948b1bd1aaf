"""What the bench costs a notebook's kernel: `python benchmarks/bench_ui.py [--runs 200]`.

Prints, on the machine at hand: seconds from Run to the first point with a warm worker; updates a second
and how far drawing lags behind the worker; bytes of one update; memory that many runs add to the kernel
and to the worker.
"""

import argparse
import gc
import statistics
import time
from pathlib import Path

from memlab.ui.bench import Bench
from memlab.units import MiB


def resident_bytes(pid: int | str = "self") -> int:
    """Return the resident memory of a process (Linux)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def first_point_seconds(bench: Bench) -> float:
    """Press Run and wait for the first point of the loss in the figure."""
    bench._panel.loss.chart.view.traces = []
    began = time.perf_counter()
    bench._panel.run_button.click()
    while not bench._panel.loss.chart.view.traces:
        time.sleep(0.002)
    seconds = time.perf_counter() - began
    bench._session.ended.wait()
    return seconds


def tick_seconds(bench: Bench, seconds: float = 5) -> tuple[float, float, int]:
    """Return updates a second, the median time that one takes, and the bytes that it sends."""
    times: list[float] = []
    plain = bench._show_news

    def timed(**how: bool) -> None:
        began = time.perf_counter()
        plain(**how)
        times.append(time.perf_counter() - began)

    bench._show_news = timed
    bench.run(steps=1_000_000)
    time.sleep(seconds)
    bench._session.worker.stop()
    bench._session.ended.wait()
    bench._show_news = plain
    sent = sum(
        len(trace[axis]) for card in bench._panel.cards for trace in card.chart.view.traces for axis in "xy"
    )
    return len(times) / seconds, statistics.median(times), sent


def growth(bench: Bench, runs: int) -> tuple[int, int]:
    """Return the bytes that `runs` runs add to kernel and worker, after five to settle."""
    for _ in range(5):
        bench.run(steps=5, block=True)
    gc.collect()
    before = resident_bytes(), resident_bytes(bench._session.worker.pid)
    for _ in range(runs):
        bench.run(steps=5, block=True)
    gc.collect()
    after = resident_bytes(), resident_bytes(bench._session.worker.pid)
    return after[0] - before[0], after[1] - before[1]


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    bench = Bench(model="mlp", micro_batch_size=4, gradient_accumulation_steps=2, steps=5)
    bench.run(block=True)
    points = [first_point_seconds(bench) for _ in range(5)]
    print(
        f"Run to first point, warm worker: median {statistics.median(points):.2f} s, most {max(points):.2f} s"
    )
    rate, seconds, sent = tick_seconds(bench)
    print(f"updates: {rate:.1f} a second, {1000 * seconds:.0f} ms each, {sent / 1024:.0f} KiB of points")
    kernel, worker = growth(bench, runs)
    print(f"{runs} runs add {kernel / MiB:.1f} MiB to the kernel and {worker / MiB:.1f} MiB to the worker")
    bench.close()


if __name__ == "__main__":
    main()
