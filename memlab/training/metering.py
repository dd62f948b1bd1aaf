"""What the loop asks of a meter. It is handed in, so that training knows no meter."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn


class StepMeter(Protocol):
    """Watches the memory of optimizer steps."""

    def watch(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Learn what is to be watched; called once, after both are built."""
        ...

    def recording(self) -> AbstractContextManager[object]:
        """Record while the context is open: one optimizer step."""
        ...

    def mark(self, phase: str, micro_step: int = 0) -> None:
        """Say that "forward", "backward" or "optimizer" begins here."""
        ...

    def exchange(self, buffer: Tensor) -> None:
        """Learn of a tensor through which ranks exchange gradients or weights; before `watch`, or while recording."""
        ...

    def close(self) -> None:
        """Let go of all that is watched."""
        ...


class _NullMeter:
    def watch(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        pass

    def recording(self) -> AbstractContextManager[object]:
        return nullcontext()

    def mark(self, phase: str, micro_step: int = 0) -> None:
        pass

    def exchange(self, buffer: Tensor) -> None:
        pass

    def close(self) -> None:
        pass


NULL_METER: StepMeter = _NullMeter()
"""Watches nothing."""
