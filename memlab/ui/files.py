"""Where a run is saved."""

import re
from pathlib import Path

from memlab.run import Run

LONGEST = 50
"""Letters of a run's name in the name of its file."""


def save_run(run: Run, name: str, path: str | Path | None = None) -> Path:
    """Write `run` as JSON to `path`, or to a file in this folder that is named after it and is new."""
    place = Path(path) if path is not None else _free(f"memlab-run-{_plain(name)}")
    place.write_text(run.to_json(), encoding="utf-8")
    return place


def _plain(name: str) -> str:
    # File systems take 255 bytes of a name, and a letter is four at most.
    return re.sub(r"[^\w-]+", "-", name)[:LONGEST].strip("-") or "unnamed"


def _free(stem: str) -> Path:
    place, number = Path(f"{stem}.json"), 2
    while place.exists():
        place, number = Path(f"{stem}-{number}.json"), number + 1
    return place
