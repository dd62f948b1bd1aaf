"""Models cut to their first blocks, where all blocks are alike."""

from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from memlab.workload import Workload

_OF_EVERY_MODULE = set(vars(nn.Module())) - {"training"}
_PLAIN = (bool, int, float, str, type(None), torch.dtype)


def block_list(workload: Workload, model: nn.Module) -> nn.ModuleList | None:
    """Return the list of blocks of `model` if they are alike in all but their numbers, else None."""
    blocks = workload.blocks(model)
    lists = (module for module in model.modules() if isinstance(module, nn.ModuleList))
    found = next((each for each in lists if len(each) and [*each] == blocks), None)
    if found is None or len({_likeness(block) for block in blocks}) > 1:
        return None
    tensors = [id(tensor) for block in blocks for tensor in _tensors(block)]
    return found if len(set(tensors)) == len(tensors) else None  # not where blocks share weights


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _likeness(block: nn.Module) -> tuple[Any, ...]:
    """Return all that may decide what a block does: classes, settings, shapes, hooks."""
    return tuple(
        (name, type(module), _settings(module), _shapes(module), _hooks(module))
        for name, module in block.named_modules()
    )


def _settings(module: nn.Module) -> tuple[Any, ...]:
    own = ((name, value) for name, value in vars(module).items() if name not in _OF_EVERY_MODULE)
    return tuple((name, _setting(value)) for name, value in own)


def _setting(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value), tuple(_setting(item) for item in value)
    # Of other objects only the very same are known to do the same.
    return (type(value), value) if isinstance(value, _PLAIN) else id(value)


def _shapes(module: nn.Module) -> tuple[Any, ...]:
    named = (*module._parameters.items(), *module._buffers.items())
    return tuple(
        (name, None if t is None else (type(t), t.shape, t.stride(), t.dtype, t.requires_grad))
        for name, t in named
    )


def _hooks(module: nn.Module) -> tuple[int, ...]:
    return tuple(len(value) for name, value in vars(module).items() if name.endswith("_hooks"))


def cut(model: nn.Module, blocks: nn.ModuleList, count: int) -> nn.Module:
    """Return a copy of `model` with its first `count` blocks; `model` stays as it is."""
    whole = blocks._modules
    blocks._modules = dict(list(whole.items())[:count])
    try:
        copies = {id(tensor): _like(tensor) for tensor in _tensors(model) if type(tensor) is FakeTensor}
        return deepcopy(model, copies)
    finally:
        blocks._modules = whole


def _like(tensor: Tensor) -> Tensor:
    made = torch.empty_like(tensor)
    is_weight = isinstance(tensor, nn.Parameter)
    return nn.Parameter(made, requires_grad=tensor.requires_grad) if is_weight else made


def giving(workload: Workload, model: Callable[[], nn.Module]) -> Workload:
    """Return `workload` with another model: what `model()` gives."""
    other = copy(workload)
    other.build_model = lambda plan: model()  # type: ignore[method-assign]
    return other
