"""How many changes the allocator model replays in a second of processor time, for a training step's pattern and for churn.

python benchmarks/allocator.py [--changes 100000]
"""

import argparse
import random
import time

from memlab.memory.allocator import replay_events
from memlab.units import KiB, MiB, format_bytes

Changes = tuple[list[int], list[int]]
SETTINGS = ({}, {"expandable_segments": True}, {"max_split_size_bytes": 64 * MiB})


def training(changes: int, depth: int = 200) -> Changes:
    """Return steps that allocate `depth` activations, each with a temporary, and free them backwards."""
    deltas: list[int] = []
    numbers: list[int] = []
    number = 0
    sizes = (4 * MiB, 16 * MiB + 512, 300 * KiB, 24 * MiB, 2 * KiB)
    while len(deltas) < changes:
        kept = []
        for layer in range(depth):
            size = sizes[layer % len(sizes)]
            deltas += [size, 2 * size, -2 * size]
            numbers += [number, number + 1, number + 1]
            kept.append((number, size))
            number += 2
        deltas += [-size for _, size in reversed(kept)]
        numbers += [kept_number for kept_number, _ in reversed(kept)]
    return deltas[:changes], numbers[:changes]


def churn(changes: int, alive_at_most: int = 2000) -> Changes:
    """Return random sizes, freed in random order: the worst that fragmentation offers."""
    dice = random.Random(0)
    deltas: list[int] = []
    numbers: list[int] = []
    alive: list[tuple[int, int]] = []
    for number in range(changes):
        if len(alive) > alive_at_most or (alive and dice.random() < 0.45):
            freed, size = alive.pop(dice.randrange(len(alive)))
            deltas.append(-size)
            numbers.append(freed)
        else:
            size = dice.choice(
                [dice.randrange(1, 2 * KiB), dice.randrange(1, MiB), dice.randrange(MiB, 40 * MiB)]
            )
            alive.append((number, size))
            deltas.append(size)
            numbers.append(number)
    return deltas, numbers


def main() -> None:
    """Print one line for each pattern and setting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--changes", type=int, default=100_000)
    count = parser.parse_args().changes
    for pattern in (training, churn):
        deltas, numbers = pattern(count)
        for settings in SETTINGS:
            began = time.process_time()
            replay = replay_events(deltas, numbers, **settings)
            rate = len(replay) / (time.process_time() - began)
            print(
                f"{pattern.__name__:9} {', '.join(settings) or 'default':20} {rate:10,.0f} changes/s   "
                f"allocated {format_bytes(replay.peak_allocated)}, reserved {format_bytes(replay.peak_reserved)}"
            )


if __name__ == "__main__":
    main()
