"""Which rank broke a run off, and why: one sentence."""

import re
import time
from dataclasses import dataclass, field
from typing import Any

from memlab.engine.out_of_memory import OutOfMemory
from memlab.engine.process import ending
from memlab.engine.protocol import RankFailed
from memlab.events import Failed
from memlab.plan import PlanError

PATIENCE = 10.0
"""Seconds that ranks may wait for one that computes, at least."""
SLOWER = 3.0
"""By how much the longest wait so far may be exceeded before a rank is held to hang."""
_LOST_PEER = re.compile(
    r"connection (closed|reset|refused)|broken pipe|gloo|timed? ?out|nccl (error|communicator)", re.IGNORECASE
)
_REPORTED = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)\s*\n\s*exitcode\s*:\s*(-?\d+)")
TERMINATED = -15


def as_error(failed: Failed) -> Exception:
    """Return `failed` as what `measure` raises."""
    kinds = {"out-of-memory": OutOfMemory, "plan": PlanError}
    return kinds.get(failed.kind, RankFailed)(failed.message)


@dataclass
class Watch:
    """Notices that a rank stands still while the others wait for it."""

    longest: float = 0.0
    """Longest time without progress that ended by itself, in seconds."""
    _changed: float = field(default_factory=time.monotonic)
    _seen: tuple[int, ...] = ()
    _beats: dict[int, tuple[int, float]] = field(default_factory=dict)
    """The last beat of each rank, and when it came."""

    def hanging(self, beats: list[dict[str, Any] | None]) -> tuple[list[int], float]:
        """Return the ranks that hang, and for how many seconds; none while all may be at work."""
        now = time.monotonic()
        frozen = self._frozen(beats, now)
        known = [beat for beat in beats if beat is not None]
        progress = tuple(beat["progress"] for beat in known)
        started = len(known) == len(beats) and min(progress) > 0
        if not started or progress != self._seen or any(beat["paused"] for beat in known):
            if started and self._seen and not any(beat["paused"] for beat in known):
                self.longest = max(self.longest, now - self._changed)
            self._seen, self._changed = progress if started else (), now
            return [], 0.0
        quiet = now - self._changed
        behind = [
            n
            for n, beat in enumerate(known)
            if beat["progress"] == min(progress) and (not beat["waits"] or n in frozen)
        ]
        if quiet < max(PATIENCE, SLOWER * self.longest) or not 0 < len(behind) < len(beats):
            return [], quiet
        return behind, quiet

    def _frozen(self, beats: list[dict[str, Any] | None], now: float) -> set[int]:
        """Return the ranks whose beats stopped: a process that is stopped may last have said that it waits."""
        for rank, beat in enumerate(beats):
            if beat is not None and self._beats.get(rank, (0, now))[0] != beat["number"]:
                self._beats[rank] = beat["number"], now
        return {rank for rank, (_, came) in self._beats.items() if now - came >= PATIENCE}


def hung(behind: list[int], seconds: float, beats: list[dict[str, Any] | None], world_size: int) -> Failed:
    """Say which rank hangs, and where."""
    beat = beats[behind[0]] or {}
    return Failed(
        kind="crash",
        message=f"Rank {behind[0]} of {world_size} hangs, last seen in {beat.get('place')} at {beat.get('line')}: other "
        f"ranks have waited for it for {seconds:.0f} s; all were ended, and the next run starts new ones.",
    )


def broke_off(said: dict[int, Failed], report: str, world_size: int, code: int | None) -> Failed:
    """Say who broke a run off, from what the ranks said, first come first, and torchrun's own report."""
    own = {rank: failed for rank, failed in said.items() if not _LOST_PEER.search(failed.message)}
    for rank, failed in own.items():
        if failed.kind == "plan":  # all ranks say the same
            return failed
        return Failed(
            kind=failed.kind, message=f"Rank {rank} of {world_size}: {failed.message}", details=failed.details
        )
    ends = {int(rank): int(code) for rank, code in _REPORTED.findall(report)}
    silent = {rank: code for rank, code in ends.items() if rank not in said and code != TERMINATED}
    for rank, exit_code in sorted(silent.items(), key=lambda item: item[1]):
        return Failed(
            kind="crash",
            message=f"Rank {rank} of {world_size} died ({ending(exit_code)}), and the other ranks were ended with "
            "it; start the run again, with a smaller micro_batch_size if memory was short.",
            details=report,
        )
    # torchrun reports no exit code 0; where several are mute, it may have ended some of them itself.
    mute = [rank for rank in range(world_size) if rank not in said and rank not in ends]
    for rank, failed in said.items():
        if len(mute) == 1:
            return Failed(
                kind="crash",
                message=f"Rank {mute[0]} of {world_size} ended without a word, and rank {rank} lost its connection to it; "
                "look in your program for what ends a process, such as os._exit.",
                details=failed.details,
            )
        return Failed(
            kind="crash",
            message=f"Rank {rank} of {world_size} lost its connection to the others: {failed.message}",
            details=failed.details,
        )
    return Failed(
        kind="crash",
        message=f"torchrun could not start {world_size} ranks ({'no exit code' if code is None else ending(code)}); "
        "the details show what it said.",
        details=report,
    )
