"""A run's own settings of torch: what the program around it chose for itself does not reach the run."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch

_AUTOCASTING = ("cpu", "cuda")
_HOST = torch.device("cpu")


_NOTHING = nullcontext()


def plain_torch() -> AbstractContextManager[object]:
    """Run with torch as it is imported: gradients on, autocast and inference mode off, FP32 and host by default.

    What was set before is back on the way out. Where nothing was, this costs a microsecond.
    """
    settings = list(_unlike_plain_torch())
    return _all(settings) if settings else _NOTHING


@contextmanager
def _all(settings: list[AbstractContextManager[object]]) -> Iterator[None]:
    with ExitStack() as stack:
        for setting in settings:
            stack.enter_context(setting)
        yield


def by_default_on(device: torch.device) -> AbstractContextManager[object]:
    """Make tensors on `device`, within `plain_torch`: there nothing is to be said of the host."""
    return (
        nullcontext() if device == _HOST else device
    )  # a mode, which every function of torch passes through


def _unlike_plain_torch() -> Iterator[AbstractContextManager[object]]:
    """Yield what undoes each setting that differs."""
    if torch.is_inference_mode_enabled():
        yield torch.inference_mode(False)
    if not torch.is_grad_enabled():
        yield torch.enable_grad()
    if torch.get_default_dtype() != torch.float32:
        yield _default_dtype(torch.float32)
    # A default device is a mode on this stack; asking for it takes 10 us, the stack's length none.
    if torch._C._len_torch_function_stack() and torch.get_default_device() != _HOST:
        yield _HOST
    if depth := _autocast_depth():
        yield _outside_autocast(depth)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _autocast_depth() -> int:
    """Return how many autocasts are open around this line."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


@contextmanager
def _outside_autocast(depth: int) -> Iterator[None]:
    """Turn off the `depth` autocasts that are open.

    At a depth of 0 the plan's own autocast drops its copies of the weights as it ends: within another
    it would keep them, and the next step would compute with the weights of the first.
    """
    cached = torch.is_autocast_cache_enabled()
    enabled = [torch.is_autocast_enabled(device) for device in _AUTOCASTING]
    for _ in range(depth):
        torch.autocast_decrement_nesting()
    _set_autocast([False] * len(_AUTOCASTING), cached=True)
    try:
        yield
    finally:
        _set_autocast(enabled, cached)
        for _ in range(depth):
            torch.autocast_increment_nesting()


def _set_autocast(enabled: list[bool], cached: bool) -> None:
    torch.clear_autocast_cache()  # a copy of a weight that this run changes must not outlive it
    torch.set_autocast_cache_enabled(cached)
    for device, on in zip(_AUTOCASTING, enabled, strict=True):
        torch.set_autocast_enabled(device, on)
