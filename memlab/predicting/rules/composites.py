"""Operators that torch takes apart on other devices and not on CUDA: registered once for our device."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from memlab.predicting.rules.attention import attention

aten = torch.ops.aten
AMPERE = (8, 0)


_capability: ContextVar[tuple[int, int]] = ContextVar("compute capability", default=AMPERE)
"""Of the card that is predicted for: kernels that are registered once look it up here."""


@contextmanager
def predicting_for(capability: tuple[int, int]) -> Iterator[None]:
    """Choose kernels as on a card of this compute capability."""
    token = _capability.set(capability)
    try:
        yield
    finally:
        _capability.reset(token)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Choose the kernel as on CUDA."""
    capability = _capability.get()
    return attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, capability)


def log_softmax(logits: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Read FP16 and write FP32 in one kernel, without a copy (aten/native/SoftMax.cpp)."""
    return _softmax(aten._log_softmax, logits, dim, dtype)


def softmax(logits: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Read FP16 and write FP32 in one kernel, without a copy (aten/native/SoftMax.cpp)."""
    return _softmax(aten._softmax, logits, dim, dtype)


def _softmax(kernel: Any, logits: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    if logits.dtype == torch.float16 and dtype == torch.float32:
        return kernel(logits, dim, True)
    return kernel(logits if dtype is None else logits.to(dtype), dim, False)


def _never_runs(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("a tensor without data reached a kernel")


COMPOSITES = {
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "log_softmax.int": log_softmax,
    "softmax.int": softmax,
}
"""Replaced whole, above autograd."""
WHOLE = ("_fused_rms_norm",)
"""Kept whole with autograd's own formula: that needs no more than a kernel's being there."""


def register(library: torch.library.Library) -> None:
    """Register them for our device."""
    for name, function in COMPOSITES.items():
        library.impl(name, function, "AutogradPrivateUse1")
    for name in WHOLE:
        library.impl(name, _never_runs, "PrivateUse1")
