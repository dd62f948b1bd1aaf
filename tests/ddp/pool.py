"""Ranks that stay: a process group is made once, and tests send it one task after the other."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
LONGEST = 120.0
"""Seconds after which ranks that do not answer have failed, on the slowest machine."""


class Pool:
    """`world_size` processes that torchrun started and that have joined each other."""

    def __init__(self, world_size: int) -> None:
        from memlab.engine.torchrun import on_this_machine, ranks_environment

        self.world_size = world_size
        self._folder = tempfile.TemporaryDirectory(prefix="memlab-pool-")
        self.folder = Path(self._folder.name)
        *command, _, _, _ = on_this_machine(self.folder, world_size)
        self._process = subprocess.Popen(
            [*command, "-m", "tests.ddp.pool", str(self.folder)],
            env={**ranks_environment(self.folder, world_size, [str(ROOT)]), "OMP_NUM_THREADS": "1"},
            cwd=ROOT,
            stdin=subprocess.PIPE,
        )
        self._tasks = 0

    def run(self, task: str, **arguments: Any) -> list[Any]:
        """Return what each rank answers to the function `task` of tests.ddp.tasks."""
        number, self._tasks = self._tasks, self._tasks + 1
        _write(self.folder / f"task-{number}", json.dumps([task, arguments]).encode())
        answers = [self._answer(number, rank) for rank in range(self.world_size)]
        if errors := [answer["error"] for answer in answers if "error" in answer]:
            raise AssertionError(errors[0])
        return [answer["value"] for answer in answers]

    def _answer(self, number: int, rank: int) -> dict[str, Any]:
        path, deadline = self.folder / f"answer-{number}-{rank}", time.monotonic() + LONGEST
        while not path.exists():
            assert time.monotonic() < deadline and self._process.poll() is None, "the ranks do not answer"
            time.sleep(0.005)
        return torch.load(path, weights_only=True)

    def close(self) -> None:
        _write(self.folder / f"task-{self._tasks}", b"null")
        self._process.wait(LONGEST)
        self._process.stdin.close()
        self._folder.cleanup()


def _write(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".new")
    draft.write_bytes(content)
    draft.rename(path)


def serve(folder: Path) -> None:
    """Do what comes, as one rank, until null comes."""
    from memlab.plan import Plan
    from memlab.training.ranks import join
    from tests.ddp import tasks

    rank, number = int(os.environ["RANK"]), 0
    join(Plan(world_size=int(os.environ["WORLD_SIZE"])), torch.device("cpu"))
    while (asked := _next(folder / f"task-{number}")) is not None:
        task, arguments = asked
        try:
            answer = {"value": getattr(tasks, task)(**arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        draft = folder / f"draft-{number}-{rank}.pt"
        torch.save(answer, draft)
        draft.rename(folder / f"answer-{number}-{rank}")
        number += 1


def _next(path: Path) -> Any:
    while not path.exists():
        time.sleep(0.005)
    return json.loads(path.read_bytes())


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
    os._exit(0)
