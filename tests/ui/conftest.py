"""A bench that needs no browser."""

import os
from collections.abc import Callable, Iterator

import pytest

os.environ["MEMLAB_CHARTS"] = "plotly"

from memlab.engine.client import Worker
from memlab.ui.bench import Bench
from memlab.ui.session import Session


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One process for all tests of a file: it takes seconds to warm up."""
    made = Worker()
    yield made
    made.close()


@pytest.fixture
def bench(worker: Worker) -> Iterator[Bench]:
    """A bench on a model that trains in milliseconds."""
    made = Bench(model="mlp", micro_batch_size=4, gradient_accumulation_steps=2, steps=3)
    made._session.worker = worker
    yield made
    worker.stop()
    made._session.ended.wait(10)
    made._pump.close()
    worker.events()
    Session._all.discard(made._session)  # else another bench's warm-up would end the shared worker


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Wait, with patience for a busy machine, until something holds."""
    import time

    def wait(holds: Callable[[], object]) -> None:
        end = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < end, "did not come true within 60 s"
            time.sleep(0.02)

    return wait
