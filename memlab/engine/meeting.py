"""The folder in which a launcher and its ranks meet: plan, events, commands. Files alone: no port is open."""

import json
import os
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from memlab.plan import Plan, PlanError

if TYPE_CHECKING:
    from memlab.workload import Workload


@dataclass(frozen=True)
class Meeting:
    """A private folder, and the names in it."""

    folder: Path
    BEAT_BYTES: ClassVar[int] = 400

    def prepare(self, plan: Plan, workload: "Workload | None") -> None:
        """Write what the ranks are to train; raise PlanError where `workload` cannot go to another process."""
        write_whole(self.folder / "plan.json", plan.to_json())
        if workload is not None:
            (self.folder / "workload.pickle").write_bytes(packed(workload))

    @property
    def plan(self) -> Plan:
        """What the ranks train."""
        return Plan.from_json((self.folder / "plan.json").read_text(encoding="utf-8"))

    def workload(self) -> "Workload | None":
        """Return the launcher's workload; None where the plan names one of ours."""
        path = self.folder / "workload.pickle"
        # Written by this user's launcher, into a folder that nobody else may open.
        return pickle.loads(path.read_bytes()) if path.exists() else None

    def events_file(self, rank: int) -> Path:
        """Where `rank` writes its events."""
        return self.folder / f"events-{rank}.jsonl"

    def pid_file(self, rank: int) -> Path:
        """Where `rank` says which process it is."""
        return self.folder / f"pid-{rank}"

    def beat_file(self, rank: int) -> Path:
        """Where `rank` says how far it is."""
        return self.folder / f"beat-{rank}"

    def say(self, command: str) -> None:
        """Tell all ranks to "pause", "resume" or "stop"."""
        write_whole(self.folder / "command", command)

    def command(self) -> str:
        """Return what the launcher said last; empty before it said anything."""
        try:
            return (self.folder / "command").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def beat(self, rank: int) -> dict[str, Any] | None:
        """Return how far `rank` is; None before it has begun."""
        try:
            return json.loads(self.beat_file(rank).read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    def pid(self, rank: int) -> int | None:
        """Return the process of `rank`; None before it runs."""
        try:
            return int(self.pid_file(rank).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None


def write_whole(path: Path, text: str) -> None:
    """Write `text` so that a reader finds all of it or the file of before."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def packed(workload: "Workload") -> bytes:
    """Return `workload` for other processes; raise PlanError where they could not build it again."""
    kind = type(workload)
    if kind.__module__ == "__main__":
        raise PlanError(
            f"{kind.__name__} is defined in this notebook or script, which the processes of several ranks cannot "
            f"import: move the class into a file beside it, say my_workload.py, and import it from there."
        )
    try:
        return pickle.dumps(workload)
    except Exception as error:  # pickle lets whatever an object's own methods raise through
        raise PlanError(
            f"{kind.__name__} cannot be sent to the processes of several ranks ({type(error).__name__}: {error}): "
            "keep open files, locks and lambdas out of its attributes, or make them in build_model and batch."
        ) from error


def import_folder(workload: "Workload | None") -> list[str]:
    """Return the folder from which another process can import the class of `workload`."""
    if workload is None:
        return []
    name = type(workload).__module__
    file = getattr(sys.modules.get(name), "__file__", None)
    return [str(Path(file).resolve().parents[name.count(".")])] if file else []
