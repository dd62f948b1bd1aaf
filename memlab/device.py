"""Which device a plan runs on, and what that device can do."""

import os
import re

import torch

from memlab.plan import PlanError
from memlab.plan_rules import DEVICE, DEVICE_RULE

VARIABLE = "MEMLAB_DEVICE"
"""Environment variable that says what "auto" means."""


def resolve_device(name: str) -> torch.device:
    """Return the device that `name` ("auto", "cpu", "cuda", "cuda:N") stands for.

    "auto" is what MEMLAB_DEVICE says, else CUDA where there is one, else the CPU.
    Raises PlanError where the device does not exist or the variable names none.
    """
    if not re.fullmatch(DEVICE, name):
        raise PlanError(f"device={name!r} {DEVICE_RULE}.")
    if name != "auto":
        return _existing(name, f"device={name!r}")
    asked = os.environ.get(VARIABLE, "") or "auto"
    if not re.fullmatch(DEVICE, asked):
        raise PlanError(
            f"the environment variable {VARIABLE}={asked!r} {DEVICE_RULE}; set one of these or unset it."
        )
    if asked != "auto":
        return _existing(asked, f"the environment variable {VARIABLE}={asked!r}")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def supports_bf16(device: torch.device) -> bool:
    """Say whether `device` computes in BF16 by itself.

    torch also answers yes for a GPU that emulates it (a T4); native BF16 begins with compute
    capability 8.0. https://github.com/pytorch/pytorch/issues/148322
    """
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


def _existing(name: str, said: str) -> torch.device:
    if name == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise PlanError(
            f"{said} needs a GPU that this torch ({torch.__version__}) can use, and finds none; "
            "choose 'cpu' or 'auto'."
        )
    device = torch.device(name)
    if device.index is not None and device.index >= count:
        raise PlanError(
            f"{said} does not exist: the GPUs here are cuda:0 to cuda:{count - 1}; choose one of them."
        )
    return device
