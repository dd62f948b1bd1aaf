"""What all tests share. Imports neither torch nor widgets: a GPU machine has pytest and little else."""

import os
import shutil
import signal
from collections.abc import Iterator

import pytest

# Exact byte counts are the CPU's, on a GPU host too.
os.environ["MEMLAB_DEVICE"] = "cpu"
os.environ.setdefault("MPLBACKEND", "Agg")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts it so in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def browser() -> str | None:
    """Return the path of the Chromium that is installed."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine cannot run, with the reason."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device, and torch sees none")
    if item.get_closest_marker("browser") and browser() is None:
        pytest.skip(f"needs one of {', '.join(BROWSERS)} on the PATH")


@pytest.fixture(autouse=True)
def device_of_the_test(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let device="auto" find the GPU in tests marked gpu alone."""
    if request.node.get_closest_marker("gpu"):
        monkeypatch.delenv("MEMLAB_DEVICE", raising=False)
    yield
