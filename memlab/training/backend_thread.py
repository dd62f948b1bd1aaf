"""gloo's thread keeps a collective's tensors for a moment after it is done: they would die at a moment of its.

Here the rank waits for it, on the host, so that a meter finds the same at every run.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_MOST_SECONDS = 2.0  # nothing was ever held for a hundredth of one; a machine may stop a thread for longer
_PAUSE_SECONDS = 2e-5


@contextmanager
def let_go(*tensors: Tensor) -> Iterator[None]:
    """Wait at the end until as many hold `tensors` and their storages as at the beginning."""
    before = [(tensor, _holders(tensor)) for tensor in tensors if tensor.is_cpu]
    yield
    _wait_while(lambda: any(_holders(tensor) > holders for tensor, holders in before))


@contextmanager
def integers_let_go() -> Iterator[None]:
    """Wait until the integers that are made within are dead, before other numbers are made and at the end.

    DDP sends them round to agree on new buckets, and drops them before it makes these.
    """
    with _IntegersFirst() as made:
        yield
    made.wait()


class Made(TorchDispatchMode):
    """Lists the storages that `torch.empty` makes within."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: list[tuple[ref[torch.UntypedStorage], torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and func is torch.ops.aten.empty.memory_format:
            self.storages.append((ref(out.untyped_storage()), out.dtype))
        return out


class _IntegersFirst(Made):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        dtype = (kwargs or {}).get("dtype") or torch.get_default_dtype()
        if func is torch.ops.aten.empty.memory_format and dtype.is_floating_point:
            self.wait()
        return super().__torch_dispatch__(func, types, args, kwargs)

    def wait(self) -> None:
        """Wait until all integers on the host are dead."""
        integers = [storage for storage, dtype in self.storages if not dtype.is_floating_point]
        _wait_while(lambda: any(_lives_on_host(storage()) for storage in integers))


def _lives_on_host(storage: torch.UntypedStorage | None) -> bool:
    return storage is not None and storage.device.type == "cpu"


def _holders(tensor: Tensor) -> tuple[int, int]:
    # Private, both; gloo holds the tensors themselves (all-reduce) or views of them (all-gather).
    return tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def _wait_while(held: Callable[[], bool]) -> None:
    latest = time.perf_counter() + _MOST_SECONDS
    while held() and time.perf_counter() < latest:
        time.sleep(_PAUSE_SECONDS)
