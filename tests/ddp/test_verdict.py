"""Which rank is held to hang, by the beats that ranks show."""

import time
from typing import Any

import pytest

from memlab.engine import verdict

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
