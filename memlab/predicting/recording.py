"""Record what anybody's training program allocates, on a device whose tensors have no data."""

from collections.abc import Callable
from contextlib import closing

import torch

from memlab.memory.meter import Meter
from memlab.predicting.attended import attended
from memlab.predicting.card_device import card_device
from memlab.predicting.dataless import DatalessMode, without_data
from memlab.predicting.refusals import RecordingError, own_autocast, refusals_explained
from memlab.predicting.rules import cuda
from memlab.predicting.rules.autocast import weight_cache
from memlab.trace import Trace

Iteration = Callable[[], object]


def record(
    setup: Callable[[torch.device], Iteration], iterations: int = 3, *, progress: bool = True
) -> Trace:
    """Return what `iterations` calls of `setup(device)`'s result allocate on that device; no GPU is needed.

    Tensors on the device lack data, host tensors are real. What set-up leaves alive is the trace's
    `held`, placed as `model.to(device)` would. Each iteration is one step of the trace. Raises
    RecordingError, with the source line, where the program reads data of the device. What takes more than
    ten seconds says so on standard error, unless `progress` is False; an interrupt ends it.
    """
    if not callable(setup):
        raise RecordingError(
            f"setup is a value of type {type(setup).__name__}; hand over a function setup(device) that returns the one "
            "of an iteration."
        )
    if iterations < 1:
        raise RecordingError(
            f"iterations={iterations} must be at least 1; the optimizer's state shows in the second."
        )
    device = card_device()
    mode = DatalessMode(device, cuda.RULES)
    meter = Meter(device=device, dataless=mode)
    mode.ledger = meter.ledger
    with closing(meter), refusals_explained(), own_autocast(device), weight_cache(), without_data(mode):
        with attended(mode, "recording", progress=progress):
            with meter.setting_up():
                iteration = _callable(setup(device))
            for _ in range(iterations):
                with meter.recording(marked=False):
                    iteration()
        return meter.trace


def _callable(iteration: Iteration) -> Iteration:
    if not callable(iteration):
        raise RecordingError(
            f"setup returned a value of type {type(iteration).__name__}; return the function that runs one iteration."
        )
    return iteration
