"""Which rank is held to hang, by the beats that ranks show."""

import time
from typing import Any

import pytest

from memlab.engine import verdict
from memlab.events import Failed

PATIENCE = 0.05


def beat(number: int, *, progress: int = 7, waits: bool = True, paused: bool = False) -> dict[str, Any]:
    return {"number": number, "progress": progress, "waits": waits, "paused": paused}


def seen(monkeypatch: pytest.MonkeyPatch, *pairs: tuple[dict[str, Any], dict[str, Any]]) -> list[int]:
    """Return who hangs after the last of `pairs` of beats, each of which is shown for longer than the patience."""
    monkeypatch.setattr(verdict, "PATIENCE", PATIENCE)
    watch, behind = verdict.Watch(), []
    for pair in pairs:
        behind, _ = watch.hanging([*pair])
        time.sleep(1.5 * PATIENCE)
    return behind


def test_a_rank_that_computes_while_the_other_waits_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(beat(n), beat(n, waits=False)) for n in range(1, 4)]

    assert seen(monkeypatch, *pairs) == [1]


def test_a_stopped_rank_hangs_though_it_last_said_that_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(beat(n), beat(1)) for n in range(1, 5)]

    assert seen(monkeypatch, *pairs) == [1]


@pytest.mark.parametrize(
    "pairs",
    [
        [(beat(n), beat(n)) for n in range(1, 4)],
        [(beat(n, waits=False), beat(n, waits=False)) for n in range(1, 4)],
        [(beat(n, progress=n), beat(1, progress=1)) for n in range(1, 4)],
        [(beat(n, paused=True), beat(1, paused=True)) for n in range(1, 4)],
    ],
    ids=["all wait", "all compute", "one goes on", "paused"],
)
def test_nobody_hangs_while(
    monkeypatch: pytest.MonkeyPatch, pairs: list[tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    assert seen(monkeypatch, *pairs) == []


LOST = Failed(kind="crash", message="RuntimeError: Connection reset by peer")
BROKEN = Failed(kind="crash", message="KeyError: 'label 7'")
REPORT = "  rank      : 1 (local_rank: 1)\n  exitcode  : {} (pid: 7)\n"


@pytest.mark.parametrize(
    ("said", "report", "sentence"),
    [
        ({0: LOST, 1: BROKEN}, "", "Rank 1 of 3: KeyError: 'label 7'"),
        ({0: LOST, 2: LOST}, REPORT.format(3), "Rank 1 of 3 died (exit code 3)"),
        # torchrun takes exit code 0 for a good end, and says nothing of it.
        ({0: LOST, 2: LOST}, "", "Rank 1 of 3 ended without a word, and rank 0 lost its connection to it"),
        # One of two that are mute may have been ended by torchrun.
        ({2: LOST}, "", "Rank 2 of 3 lost its connection to the others"),
        ({}, "", "torchrun could not start 3 ranks (exit code 1)"),
    ],
)
def test_who_broke_a_run_off(said: dict[int, Failed], report: str, sentence: str) -> None:
    assert verdict.broke_off(said, report, 3, 1).message.startswith(sentence)
