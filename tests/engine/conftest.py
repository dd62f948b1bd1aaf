"""A warm worker process that the engine's tests share, and how to wait for what it says."""

import time
from collections.abc import Callable, Iterator

import pytest

from memlab.engine.client import Worker
from memlab.events import Event, Failed, Finished
from memlab.plan import Plan

LONGEST = 120.0
"""Seconds after which a worker that says nothing has failed, on the slowest machine."""
BRIEF = Plan(model="mlp", micro_batch_size=4, steps=3)
ENDLESS = Plan(model="mlp", micro_batch_size=4, steps=10**6)


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait until `happened`; fail where it never does."""
    deadline = time.monotonic() + LONGEST
    while not happened():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def events_until(worker: Worker, last: type | tuple[type, ...] = (Finished, Failed)) -> list[Event]:
    """Return the worker's events up to the first of kind `last`, and what came with it."""
    seen: list[Event] = []

    def arrived() -> bool:
        seen.extend(worker.events())
        return any(isinstance(event, last) for event in seen)

    wait_until(arrived)
    return seen


@pytest.fixture(scope="session")
def shared_worker() -> Iterator[Worker]:
    """A worker for tests that leave it idle or dead."""
    worker = Worker(threads=1)
    yield worker
    worker.close()


@pytest.fixture
def worker(shared_worker: Worker) -> Worker:
    """The shared worker, with nothing left over from the test before."""
    assert not shared_worker.busy
    shared_worker.events()
    return shared_worker
