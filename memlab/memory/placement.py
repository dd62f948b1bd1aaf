"""The order in which a model's tensors are placed in memory; which models and optimizers a program has made."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules


def placement(model: nn.Module) -> Iterator[Tensor]:
    """Yield the tensors of `model` in the order in which `model.to(device)` places them."""
    for child in model.children():
        yield from placement(child)
    for parameter in model._parameters.values():
        if parameter is not None:
            yield parameter
    for buffer in model._buffers.values():
        if buffer is not None:
            yield buffer


@contextmanager
def new_modules() -> Iterator[list[weakref.ref[nn.Module]]]:
    """Note the modules to which something is added within: parameters, buffers or other modules."""
    made: dict[int, weakref.ref[nn.Module]] = {}

    def note(module: nn.Module, name: str, added: Any) -> None:
        if id(module) not in made or made[id(module)]() is not module:
            made[id(module)] = weakref.ref(module)

    handles = (
        modules.register_module_parameter_registration_hook(note),
        modules.register_module_buffer_registration_hook(note),
        modules.register_module_module_registration_hook(note),
    )
    listed: list[weakref.ref[nn.Module]] = []
    try:
        yield listed
    finally:
        for handle in handles:
            handle.remove()
        listed += made.values()


def roots(made: list[weakref.ref[nn.Module]]) -> list[nn.Module]:
    """Return those that live and belong to no other."""
    alive = [module for reference in made if (module := reference()) is not None]
    inside = {id(part) for module in alive for part in module.children()}
    return [module for module in alive if id(module) not in inside]


@contextmanager
def new_optimizers() -> Iterator[list[torch.optim.Optimizer]]:
    """Note the optimizers that are made within; torch has no hook for it."""
    made: list[torch.optim.Optimizer] = []
    add_param_group = torch.optim.Optimizer.add_param_group

    def noted(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
        add_param_group(optimizer, group)
        if not any(known is optimizer for known in made):
            made.append(optimizer)

    torch.optim.Optimizer.add_param_group = noted  # type: ignore[method-assign]
    try:
        yield made
    finally:
        torch.optim.Optimizer.add_param_group = add_param_group  # type: ignore[method-assign]
