"""Hold predictions against published runs on real GPUs: `python benchmarks/published_runs.py FOLDER`.

FOLDER holds cnn_and_transformer_runs.csv (the runs of xMem, arXiv 2510.21048, with what four
estimators said), mlp_runs.csv (GPUMemNet, arXiv 2602.17817) and technique_runs.csv (the single-GPU
guide of Transformers, v4.27 and before). See requirements-published.txt.
"""

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np

import memlab
from benchmarks.published.models import convolutional, perceptron, transformer
from benchmarks.published.programs import Setup, feature_program, image_program, text_program
from benchmarks.published.techniques import technique_program

MIB = 2**20
TEXT_LENGTH = 128
CONTEXT_BYTES = 300 * MIB
"""Of the card's memory the allocator cannot have: said by the source of the runs."""
TECHNIQUE_CONTEXT_BYTES = 1343 * MIB
"""What the first CUDA tensor cost on the guide's V100, as the guide says; its MB are MiB (1024**2)."""
PEERS = ("xmem", "dnnmem", "schedtune", "llmem")


@dataclass(frozen=True)
class Row:
    """One run: what was measured, what was predicted, what others said."""

    family: str
    name: str
    measured: float
    predicted: float
    seconds: float
    peers: dict[str, float]

    @property
    def error(self) -> float:
        """Signed, in per cent."""
        return 100 * (self.predicted / self.measured - 1)

    @property
    def distance(self) -> str:
        """In per cent; in MiB where the measurement holds a context that the prediction leaves out."""
        if self.family == "MLP":
            return f"{(self.measured - self.predicted) / MIB:6.0f} MiB less"
        return f"{self.error:+6.2f} %"


def predicted(setup: Setup, limit_bytes: int | None = None, iterations: int = 4) -> tuple[int, float]:
    """Return the peak reserved, and the seconds that it took to predict."""
    begin = time.perf_counter()
    trace = memlab.record(setup, iterations)
    reserved = memlab.replay(trace, limit_bytes).peak_reserved
    return reserved, time.perf_counter() - begin


def network_rows(file: Path, wanted: str) -> Iterator[Row]:
    """Yield the convolutional and transformer runs whose family or model contains `wanted`."""
    for values in csv.DictReader(file.open()):
        if wanted.lower() not in f"{values['family']} {values['model']}".lower():
            continue
        batch, optimizer = int(values["batch_size"]), values["optimizer"]
        if values["family"] == "CNN":
            build, classes = convolutional(values["model"])
            setup = image_program(build, classes, optimizer, batch, values["zero_grad"])
        else:
            build = transformer(values["model"])
            setup = text_program(build, optimizer, batch, TEXT_LENGTH, values["zero_grad"])
        reserved, seconds = predicted(setup, int(values["gpu_total_bytes"]) - CONTEXT_BYTES)
        said = {peer: float(values[f"{peer}_bytes"]) for peer in PEERS if values.get(f"{peer}_bytes")}
        measured = float(values["measured_reserved_bytes"])
        short = values["family"] == "Transformer" and batch <= 10
        family = "short texts" if short else values["family"]
        name = f"{values['model'].rpartition('/')[2]} {optimizer} {batch}"
        yield Row(family, name, measured, reserved, seconds, said)


def perceptron_rows(file: Path, wanted: str) -> Iterator[Row]:
    """Yield the runs of multilayer perceptrons; measured includes the context."""
    for values in csv.DictReader(file.open()) if wanted.lower() in ("", "mlp") else ():
        build = perceptron(values)
        parameters = sum(parameter.numel() for parameter in build().parameters())
        assert parameters == int(values["parameters"]), f"{values}: rebuilt with {parameters} parameters"
        program = feature_program(build, int(values["input_features"]), int(values["batch_size"]))
        reserved, seconds = predicted(program)
        name = f"{values['architecture']} {values['parameters']} {values['batch_size']}"
        yield Row("MLP", name, float(values["measured_mib"]) * MIB, reserved, seconds, {})


def technique_rows(file: Path, wanted: str) -> Iterator[Row]:
    """Yield the runs of one model under several techniques; measured includes the context."""
    for values in csv.DictReader(file.open()) if wanted.lower() in "techniques" else ():
        reserved, seconds = predicted(technique_program(values), iterations=2)
        measured = float(values["measured_whole_device_mb"]) * MIB
        yield Row(
            "techniques", technique_name(values), measured, reserved + TECHNIQUE_CONTEXT_BYTES, seconds, {}
        )


def technique_name(values: dict[str, str]) -> str:
    """Name a row by what it sets."""
    return " ".join([
        f"{values['micro_batch_size']} x {values['gradient_accumulation_steps']}",
        values["precision"], values["activation_checkpointing"], values["optimizer"],
    ])  # fmt: skip


def differences(rows: list[Row]) -> Iterator[str]:
    """Yield how rows that differ in one setting differ, measured and predicted."""
    for one, other in combinations(rows, 2):
        settings = list(zip(one.name.split(), other.name.split(), strict=True))
        changed = [f"{a} to {b}" for a, b in settings if a != b]
        of_batch = (
            settings[0][0] != settings[0][1]
        )  # micro-batch and K make one setting: the cut of the batch
        if len(changed) - of_batch == 1:
            said, seen = other.predicted - one.predicted, other.measured - one.measured
            label = f"{one.name}: {', '.join(changed)}"
            yield (
                f"  {label:58} measured {seen / MIB:+6.0f}  predicted {said / MIB:+6.0f} MiB  "
                f"{100 * (said / seen - 1):+6.1f} % of it"
            )


def spread(errors: list[float]) -> str:
    """Return median and 90th percentile of the absolute error, the bias, and the worst."""
    absolute = np.abs(errors)
    worst = max(errors, key=abs)
    return (
        f"median {np.median(absolute):5.2f} %  p90 {np.percentile(absolute, 90):5.2f} %  "
        f"bias {np.mean(errors):+5.2f} %  worst {worst:+6.2f} %"
    )


def report(rows: list[Row]) -> None:
    """Print each family beside the other estimators."""
    for family in dict.fromkeys(row.family for row in rows if row.family not in ("MLP", "techniques")):
        mine = [row for row in rows if row.family == family]
        print(
            f"\n{family}: {len(mine)} rows, {median(row.seconds for row in mine):.2f} s a prediction (median)"
        )
        print(f"  {'memlab':12} {spread([row.error for row in mine])}")
        constant = median(row.measured - row.predicted for row in mine)
        shifted = [100 * ((row.predicted + constant) / row.measured - 1) for row in mine]
        print(f"  {'+ constant':12} {spread(shifted)}  ({constant / MIB:.0f} MiB)")
        for peer in PEERS:
            said = [100 * (row.peers[peer] / row.measured - 1) for row in mine if peer in row.peers]
            if said:
                print(f"  {peer:12} {spread(said)}")
    techniques = [row for row in rows if row.family == "techniques"]
    if techniques:
        print(f"\ntechniques: {len(techniques)} rows  {spread([row.error for row in techniques])}")
        print("\n".join(differences(techniques)))
    perceptrons = [row for row in rows if row.family == "MLP"]
    if perceptrons:
        beyond = [(row.measured - row.predicted) / MIB for row in perceptrons]
        off = [abs(size - median(beyond)) for size in beyond]
        print(
            f"\nMLP: {len(perceptrons)} rows; measured less predicted {median(beyond):.0f} MiB (the context), "
            f"median distance from it {median(off):.1f} MiB, p90 {np.percentile(off, 90):.1f} MiB"
        )


def main() -> None:
    """Rebuild the rows and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="rows whose family or model contains this")
    arguments = parser.parse_args()
    rows = []
    sources = (
        (network_rows, "cnn_and_transformer_runs.csv"),
        (perceptron_rows, "mlp_runs.csv"),
        (technique_rows, "technique_runs.csv"),
    )
    for read, name in sources:
        for row in read(arguments.folder / name, arguments.only):
            rows.append(row)
            print(
                f"{row.family:12} {row.name:34} measured {row.measured / MIB:8.0f}  predicted "
                f"{row.predicted / MIB:8.0f} MiB  {row.distance}  {row.seconds:.1f} s",
                flush=True,
            )
    report(rows)


if __name__ == "__main__":
    main()
