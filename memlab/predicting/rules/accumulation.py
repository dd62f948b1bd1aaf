"""Where several paths meet, autograd adds into the gradient that it holds alone.

What runs here must not raise: the engine would end the process.
"""

import sys
from typing import Any

import torch
from torch import Tensor

from memlab.predicting.dataless import BETWEEN, DatalessMode

_ENGINE = "_engine_run_backward"


def add_in_backward(mode: DatalessMode, func: Any, args: Any, kwargs: Any) -> Tensor:
    """Add in place what the engine would, were no dispatch mode active (InputBuffer::accumulate).

    It does so where nobody else holds the tensor or its storage. Under a mode it adds out of place,
    and this operation is what the mode sees.
    """
    if torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled() and not kwargs:
        modes = _modes_above_if_asked_by_the_engine()
        for held in args:
            if modes and isinstance(held, Tensor) and _is_held_alone(held, modes):
                return held
    return mode.run(func, args, kwargs)


def _modes_above_if_asked_by_the_engine() -> int:
    """Return how many modes pass this operation on, or 0 where a line of Python asked for it."""
    frame, modes = sys._getframe(2), 0  # the caller of the rule
    while frame is not None and frame.f_code.co_filename.startswith(BETWEEN):
        modes += frame.f_code.co_name == "__torch_dispatch__"
        frame = frame.f_back
    return modes if frame is not None and frame.f_code.co_name == _ENGINE else 0


def _is_held_alone(tensor: Tensor, modes: int) -> bool:
    # The engine's own reference and two of its call of Python; one of each mode's call; of the storage
    # the tensor's and Python's.
    storage = tensor.untyped_storage()
    return (
        tensor._use_count() == 3 + modes
        and torch._C._storage_Use_Count(storage._cdata) == 2
        and _is_dense(tensor)
    )


def _is_dense(tensor: Tensor) -> bool:
    """Say whether the elements fill a stretch of memory without gap or overlap, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
