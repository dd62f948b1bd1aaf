"""Print what each rank needs under DDP, ZeRO-1 and FSDP2, as the Markdown table of docs/prediction.md; in GiB.

python benchmarks/ranks_table.py [--model llama-7b] [--card a100-80gb] [--ranks 2 4 8 64]
"""

import argparse
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import get_args

import memlab
from memlab.plan import DataParallel
from memlab.run import Run
from memlab.units import GiB

NAMES: dict[DataParallel, str] = {"ddp": "DDP", "zero1": "ZeRO-1", "fsdp2": "FSDP2"}
COLUMNS = {
    "parameters": ("parameters",),
    "gradients": ("gradients",),
    "optimizer state": ("optimizer_state",),
    "BF16 copies": ("low_precision_copies",),
    "communication buffers": ("communication_buffers",),
    "temporaries": ("temporaries",),
    "the rest": ("buffers", "activations", "inputs"),
}
PLAN = {
    "precision": "bf16-mixed",
    "micro_batch_size": 1,
    "activation_checkpointing": "full",
    "steps": 2,
    "device": "cuda",
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="llama-7b")
    parser.add_argument("--card", default="a100-80gb")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 64])
    options = parser.parse_args()
    plan = {**PLAN, "model": options.model}
    print(line(["", "ranks", *COLUMNS, "total", "reserved", "peak in"]))
    print(line(["---"] * (len(COLUMNS) + 5)))
    print(line(["alone", "1", *cells(memlab.predict(memlab.Plan(**plan), card=options.card))]))
    for way in get_args(DataParallel):
        for row in rows(way, plan, options.card, options.ranks):
            print(row)


def rows(way: DataParallel, plan: Mapping[str, object], card: str, ranks: list[int]) -> Iterator[str]:
    """Yield a line for each number of `ranks`; neighbours that are equal share one."""
    found = [
        (
            world_size,
            cells(memlab.predict(memlab.Plan(**plan, data_parallel=way, world_size=world_size), card=card)),
        )
        for world_size in ranks
    ]
    name: str = NAMES[way]
    for said, alike in groupby(found, key=lambda row: row[1]):
        numbers = [str(world_size) for world_size, _ in alike]
        yield line([name, " to ".join(dict.fromkeys((numbers[0], numbers[-1]))), *said])
        name = ""


def cells(run: Run) -> list[str]:
    """Return the categories of a rank's largest instant, its total, the allocator's peak reserve and the phase."""
    sizes = [sum(run.peak[name] for name in names) for names in COLUMNS.values()]
    of_rank = [*sizes, run.peak.total, run.peak_reserved]
    return [
        *(f"{size / GiB:.1f}".removesuffix(".0") if not size else f"{size / GiB:.1f}" for size in of_rank),
        run.peak.phase,
    ]


def line(words: list[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(words)} |".replace("|  |", "| |")


if __name__ == "__main__":
    main()
