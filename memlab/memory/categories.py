"""Which category each storage has: some know it at birth, the rest when a phase ends."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from memlab.memory.ledger import (
    ACTIVATIONS,
    BUFFERS,
    GRADIENTS,
    INPUTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    TEMPORARIES,
    Ledger,
)


class Categories:
    """Labels the storages of a ledger: weights, buffers, gradients, optimizer state, activations."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._optimizers: list[torch.optim.Optimizer] = []
        self._knows_a_model = False

    def take_model(self, model: nn.Module) -> None:
        """Label what a model holds."""
        self._knows_a_model = True
        self._ledger.label(model.parameters(), PARAMETERS)
        self._ledger.label(model.buffers(), BUFFERS)
        self._ledger.label(_gradients(model.parameters()), GRADIENTS)

    def take_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Label what an optimizer holds, once."""
        if optimizer in self._optimizers:
            return
        self._optimizers.append(optimizer)
        # Weights that are not the model's are master copies, which belong to the optimizer.
        others = OPTIMIZER_STATE if self._knows_a_model else PARAMETERS
        self._ledger.label(_weights(optimizer), others, only=TEMPORARIES)
        self._ledger.label(_state(optimizer), OPTIMIZER_STATE)

    def forget_optimizers(self) -> None:
        """Let go of the optimizers."""
        self._optimizers.clear()

    def gradient_made(self, weight: Tensor) -> None:
        """Autograd stored a gradient."""
        gradient = weight.grad
        if gradient is None:
            return
        if gradient.layout is not torch.strided:
            self._ledger.label([gradient], GRADIENTS, only=TEMPORARIES)
            return
        entry = self._ledger.find(gradient)
        if entry is None:
            self._ledger.add(gradient, GRADIENTS)
        elif entry.category == TEMPORARIES:
            entry.category = GRADIENTS

    def forward_ended(self, first: int) -> None:
        """What forward made from birth number `first` on and is alive is kept for backward."""
        self.recomputation_ended(first)
        for storage in self._ledger.born[first:]:
            if storage.category == INPUTS and storage() is None:
                storage.category = TEMPORARIES

    def recomputation_ended(self, first: int) -> None:
        """What a recomputation made from birth number `first` on and is alive is kept for backward."""
        born = self._ledger.born
        if first < len(born):
            number = born[first].number
            for storage in self._ledger.live.values():
                if storage.category == TEMPORARIES and storage.number >= number:
                    storage.category = ACTIVATIONS

    def backward_ended(self) -> None:
        """Gradients that no hook showed: those of master copies."""
        for optimizer in self._optimizers:
            self._ledger.label(_gradients(_weights(optimizer)), GRADIENTS, only=TEMPORARIES)

    def step_ended(self) -> None:
        """What the optimizer made and keeps is its state."""
        if any(storage.category == TEMPORARIES for storage in self._ledger.live.values()):
            for optimizer in self._optimizers:
                self._ledger.label(_state(optimizer), OPTIMIZER_STATE, only=TEMPORARIES)


def _gradients(weights: Iterable[Tensor]) -> list[Tensor]:
    return [weight.grad for weight in weights if weight.grad is not None]


def _weights(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)
    ]
