"""What the bench costs a notebook's kernel: `python benchmarks/bench_ui.py [--runs 200]`.

Prints, on the machine at hand: seconds from Run to the first point with a warm worker; updates a second
and how long after its arrival a step is drawn; bytes of one update; how long after a control has moved the
ghost is drawn; how soon another cell answers while a run goes on; memory that many runs add to the kernel and
to the worker, and that of the predicting process.
"""

import argparse
import gc
import os
import statistics
import time
from pathlib import Path

from jupyter_client.manager import start_new_kernel

from memlab.events import Event, StepFinished
from memlab.ui.bench import Bench
from memlab.units import MiB

OTHER_CELL = """
import memlab
bench = memlab.Bench(model="mlp", micro_batch_size=4, gradient_accumulation_steps=2)
display(bench)
bench.run(steps=1_000_000)
"""


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


class Watch:
    """Notes when the worker's steps arrive and when the bench has drawn them."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.seconds: list[float] = []
        """Of each update."""
        self.behind: list[float] = []
        """Seconds from the arrival of the newest step of an update to the end of that update, where it is new."""
        self._drawn = 0
        self._arrived: dict[int, float] = {}
        self._draw = bench._show_news
        self._mailbox = bench._session.worker._process._mailbox
        self._put = self._mailbox.put
        bench._show_news, self._mailbox.put = self.draw, self.put

    def put(self, event: Event) -> None:
        if isinstance(event, StepFinished):
            self._arrived[event.step] = time.perf_counter()
        self._put(event)

    def draw(self, **how: bool) -> None:
        steps = len(self.bench._session.ledger.newest.losses)
        began = time.perf_counter()
        self._draw(**how)
        self.seconds.append(time.perf_counter() - began)
        if (
            steps > self._drawn
        ):  # the last update, of a run's end, often shows no step that was not shown before
            self._drawn = steps
            self.behind.append(time.perf_counter() - self._arrived[steps - 1])

    def close(self) -> None:
        self.bench._show_news, self._mailbox.put = self._draw, self._put


def updates(bench: Bench, seconds: float = 5) -> tuple[Watch, int]:
    """Watch a long run for `seconds`; return what was seen, and the bytes of points that an update sends."""
    watch = Watch(bench)
    bench.run(steps=1_000_000)
    time.sleep(seconds)
    bench._session.worker.stop()
    bench._session.ended.wait()
    watch.close()
    sent = sum(
        len(trace[axis]) for card in bench._panel.cards for trace in card.chart.view.traces for axis in "xy"
    )
    return watch, sent


def ghost_seconds(bench: Bench, moves: int = 12) -> tuple[list[float], list[float]]:
    """Move a control; return the seconds until a new ghost is drawn, and until a remembered one is."""
    bench._foresight.begin()
    bench._pump.start()
    new = [_moved(bench, micro_batch_size) for micro_batch_size in range(16, 16 + moves)]
    remembered = [_moved(bench, micro_batch_size) for micro_batch_size in range(17, 16 + moves)]
    return new[2:], remembered  # the first two wait for the process to warm up


def _moved(bench: Bench, micro_batch_size: int) -> float:
    began = time.perf_counter()
    bench._controls.fields["micro_batch_size"].widget.value = micro_batch_size
    words = f" {micro_batch_size} x "
    while not any(words in series.name for series in bench._panel.memory.figure.series):
        time.sleep(0.002)
    return time.perf_counter() - began


def answers(cells: int = 50) -> list[float]:
    """Return the seconds that a kernel takes to answer a small cell while its bench, shown, goes on."""
    manager, client = start_new_kernel()
    try:
        client.execute_interactive(OTHER_CELL, output_hook=lambda _message: None)
        time.sleep(5)  # the worker is warm, the run goes on
        times = []
        for _ in range(cells):
            began = time.perf_counter()
            client.execute_interactive("1 + 1", output_hook=lambda _message: None)
            times.append(time.perf_counter() - began)
            time.sleep(0.05)
        return times
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


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


def milliseconds(times: list[float]) -> str:
    """Return median and largest of `times`, given in seconds."""
    return f"{1000 * statistics.median(times):.0f} ms (median; most {1000 * max(times):.0f} ms)"


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    os.environ["MEMLAB_CHARTS"] = "plotly"  # no notebook is around, and what it would be sent is timed
    bench = Bench(model="mlp", micro_batch_size=4, gradient_accumulation_steps=2, steps=5)
    bench.run(block=True)
    points = [first_point_seconds(bench) for _ in range(5)]
    print(
        f"Run to first point, warm worker: median {statistics.median(points):.2f} s, most {max(points):.2f} s"
    )
    watch, sent = updates(bench)
    rate, each = len(watch.seconds) / 5, 1000 * statistics.median(watch.seconds)
    print(f"updates: {rate:.1f} a second, {each:.0f} ms each, {sent / 1024:.0f} KiB of points")
    print(f"the newest step is drawn {milliseconds(watch.behind)} after it arrived")
    print(f"another cell answers within {milliseconds(answers())} while a run goes on")
    for model in ("mlp", "gpt-tiny"):
        other = Bench(model=model, micro_batch_size=8, gradient_accumulation_steps=4)
        new, remembered = ghost_seconds(other)
        held = resident_bytes(other._foresight.predictor.pid) / MiB
        print(f"{model}: the ghost is drawn {milliseconds(new)} after a control has moved,")
        print(
            f"  where it was asked before {milliseconds(remembered)}; the process that predicts holds {held:.0f} MiB"
        )
        other.close()
    kernel, worker = growth(bench, runs)
    print(f"{runs} runs add {kernel / MiB:.1f} MiB to the kernel and {worker / MiB:.1f} MiB to the worker")
    bench.close()


if __name__ == "__main__":
    main()
