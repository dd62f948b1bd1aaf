"""Hooks that tell the meter where a program is; each is taken away at the end of its `with`."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

_HELD = "module"
"""What DDP calls the model that it holds."""


class ModuleNames:
    """The names of the modules that were seen, and the stack of those that run."""

    def __init__(self) -> None:
        self.all: tuple[str, ...] = ("",)
        self._index: dict[int, int] = {}
        self._stack: list[int] = []

    def add(self, model: nn.Module) -> None:
        """Number the modules of `model` by their qualified names; the root goes by its class.

        Those that DDP holds are called as without it.
        """
        names = list(self.all)
        held = f"{_HELD}." if isinstance(model, nn.parallel.DistributedDataParallel) else ""
        for name, module in model.named_modules():
            self._index[id(module)] = len(names)
            is_root = not name or bool(held) and name == _HELD
            names.append(type(module).__name__ if is_root else name.removeprefix(held))
        self.all = tuple(names)

    def knows(self, module: nn.Module) -> bool:
        """Say whether `module` has a number."""
        return id(module) in self._index

    @property
    def any(self) -> bool:
        """Whether a model was seen."""
        return len(self.all) > 1

    @property
    def depth(self) -> int:
        """Modules that run, one inside the other."""
        return len(self._stack)

    def enter(self, module: nn.Module) -> int:
        """Note that `module` runs; return its number."""
        index = self._index.get(id(module), 0)
        self._stack.append(index)
        return index

    def leave(self) -> int:
        """Note that the innermost module ended; return the number of the one around it."""
        if self._stack:
            self._stack.pop()
        return self._stack[-1] if self._stack else 0

    def leave_all(self) -> None:
        """Forget what runs."""
        self._stack.clear()


@contextmanager
def watch_modules(enter: Callable[[nn.Module], None], leave: Callable[[], None]) -> Iterator[None]:
    """Call `enter(module)` and `leave()` around the forward of every module."""
    # always_call: activation checkpointing ends a recomputation by an exception inside a forward.
    first = modules.register_module_forward_pre_hook(lambda module, inputs: enter(module))
    last = modules.register_module_forward_hook(lambda module, inputs, output: leave(), always_call=True)
    try:
        yield
    finally:
        first.remove()
        last.remove()


@contextmanager
def watch_gradients(weights: Iterable[Tensor], made: Callable[[Tensor], None]) -> Iterator[None]:
    """Call `made(weight)` whenever autograd has stored or added to `weight.grad`."""
    handles = [
        weight.register_post_accumulate_grad_hook(made)
        for weight in weights
        if weight.requires_grad and weight.is_leaf
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def watch_weights(
    model: nn.Module, gathered: Callable[[list[Tensor]], None], made: Callable[[Tensor], None]
) -> Iterator[None]:
    """Call `made(weight)` as `watch_gradients` does, and `gathered(weights)` when FSDP2 has brought some together."""
    with watch_gradients(model.parameters(), made), ExitStack() as hooks:
        followed: set[int] = set()  # FSDP2 makes each once, and keeps it

        def together(module: nn.Module, inputs: object) -> None:
            weights = [one for one in module.parameters() if not hasattr(one, "__tensor_flatten__")]
            gathered(weights)
            hooks.enter_context(watch_gradients((one for one in weights if id(one) not in followed), made))
            followed.update(map(id, weights))

        for module in _sharded(model):
            hooks.callback(module.register_forward_pre_hook(together).remove)
        yield


def _sharded(model: nn.Module) -> list[nn.Module]:
    """Return the modules that FSDP2 manages."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # half a second, where nobody imported it
    return [] if fsdp is None else [one for one in model.modules() if isinstance(one, fsdp.FSDPModule)]


@contextmanager
def watch_optimizers(
    before: Callable[[torch.optim.Optimizer], None], after: Callable[[], None]
) -> Iterator[None]:
    """Call `before(optimizer)` and `after()` around the step of every optimizer."""

    def begin(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        before(optimizer)

    def end(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        after()

    handles = (
        optimizers.register_optimizer_step_pre_hook(begin),
        optimizers.register_optimizer_step_post_hook(end),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def watch_resizes(resized: Callable[[torch.UntypedStorage], None]) -> Iterator[None]:
    """Call `resized(storage)` after each `UntypedStorage.resize_`, which no operation shows (FSDP does it)."""
    original = torch.UntypedStorage.resize_

    def resize_(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        result = original(storage, size)
        resized(storage)
        return result

    inherited = "resize_" not in vars(torch.UntypedStorage)
    torch.UntypedStorage.resize_ = resize_
    try:
        yield
    finally:
        if inherited:
            del torch.UntypedStorage.resize_
        else:
            torch.UntypedStorage.resize_ = original
