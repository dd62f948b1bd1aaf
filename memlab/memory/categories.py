"""Which category each storage has: some know it at birth, the rest when a phase ends."""

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

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

UNSETTLED = (TEMPORARIES, ACTIVATIONS, INPUTS)
"""What a storage may be called before it turns out to belong to a model or an optimizer."""


class Categories:
    """Labels the storages of a ledger: weights, buffers, gradients, optimizer state, activations."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._optimizers: list[torch.optim.Optimizer] = []
        self._models: list[weakref.ref[nn.Module]] = []

    def take_model(self, model: nn.Module) -> None:
        """Label what a model holds."""
        self._models.append(weakref.ref(model))
        self._ledger.label(model.parameters(), PARAMETERS)
        self._ledger.label(model.buffers(), BUFFERS)
        self._ledger.label(_gradients(model.parameters()), GRADIENTS)

    def take_gathered(self, weights: list[Tensor]) -> None:
        """Label weights that FSDP2 has brought together from the ranks' shares."""
        self._ledger.label(weights, PARAMETERS, only=UNSETTLED)

    def take_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Label what an optimizer holds, once."""
        if optimizer in self._optimizers:
            return
        self._optimizers.append(optimizer)
        self._ledger.label(_weights(optimizer), self._of_other_weights, only=UNSETTLED)
        self._ledger.label(_state(optimizer), OPTIMIZER_STATE)

    @property
    def _of_other_weights(self) -> int:
        """Weights that are not the model's are master copies, which belong to the optimizer."""
        return OPTIMIZER_STATE if self._models else PARAMETERS

    def forget_optimizers(self) -> None:
        """Let go of the optimizers."""
        self._optimizers.clear()

    def gradient_made(self, weight: Tensor) -> None:
        """Autograd stored a gradient."""
        gradient = weight.grad
        if gradient is None:
            return
        if gradient.layout is not torch.strided or hasattr(gradient, "__tensor_flatten__"):  # FSDP2's DTensor
            self._ledger.label([gradient], GRADIENTS, only=UNSETTLED)
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

    def no_inputs(self, first: int) -> None:
        """What was made from birth number `first` on was no micro-batch: the optimizer came."""
        for storage in self._ledger.born[first:]:
            if storage.category == INPUTS:
                storage.category = TEMPORARIES

    def recomputation_ended(self, first: int) -> None:
        """What a recomputation made from birth number `first` on and is alive is kept for backward."""
        for storage in self._ledger.living(first):
            if storage.category == TEMPORARIES:
                storage.category = ACTIVATIONS

    def backward_ended(self) -> None:
        """Gradients that no hook showed: those of master copies."""
        for optimizer in self._optimizers:
            self._ledger.label(_gradients(_weights(optimizer)), GRADIENTS, only=UNSETTLED)

    def step_ended(self) -> None:
        """What survives the step may be a model's or an optimizer's: new state, weights that were replaced."""
        if any(storage.category in UNSETTLED for storage in self._ledger.living(0)):
            self._settle_survivors()

    def _settle_survivors(self) -> None:
        for reference in self._models:
            if (model := reference()) is not None:
                # Without their names and the sets of model.parameters(): a third of its time, at each step.
                modules = [*model.modules()]
                weights = [w for module in modules for w in module._parameters.values() if w is not None]
                buffers = [b for module in modules for b in module._buffers.values() if b is not None]
                self._ledger.label(weights, PARAMETERS, only=UNSETTLED)
                self._ledger.label(buffers, BUFFERS, only=UNSETTLED)
                self._ledger.label(_gradients(weights), GRADIENTS, only=UNSETTLED)
        for optimizer in self._optimizers:
            self._ledger.label(_weights(optimizer), self._of_other_weights, only=UNSETTLED)
            self._ledger.label(_state(optimizer), OPTIMIZER_STATE, only=UNSETTLED)
        self.backward_ended()


def _gradients(weights: Iterable[Tensor]) -> list[Tensor]:
    return [weight.grad for weight in weights if weight.grad is not None]


def _weights(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [tensor for state in optimizer.state.values() for tensor in _tensors(list(state.values()))]


def _tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested lists: L-BFGS keeps its history so."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
