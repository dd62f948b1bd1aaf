"""scaled_dot_product_attention as CUDA runs it: which kernel torch chooses, and what that one makes.

After aten/src/ATen/native/transformers: attention.cpp (the choice, padding, masks) and cuda/sdp_utils.cpp
(what each kernel can do).
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from memlab.predicting.dataless import DatalessMode

aten = torch.ops.aten
Kernel = Literal["flash", "efficient", "math"]

_HALF = (torch.float16, torch.bfloat16)


def attention_kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, capability: tuple[int, int]
) -> Kernel:
    """Return the kernel that torch chooses on a card of this compute capability.

    cuDNN's kernel, which recent builds prefer on Hopper and Blackwell, makes what flash makes.
    """
    if query.dim() != 4 or not all(tensor.stride(-1) == 1 for tensor in (query, key, value)):
        return "math"
    if mask is None and _flash_can(query, key, value, capability):
        return "flash"
    return "efficient" if _efficient_can(query, key, value, capability) else "math"


def _flash_can(query: Tensor, key: Tensor, value: Tensor, capability: tuple[int, int]) -> bool:
    width = query.shape[-1]
    return (
        capability >= (8, 0)
        and query.dtype in _HALF
        and width == key.shape[-1] == value.shape[-1]
        and width <= 256
        and query.shape[1] % key.shape[1] == 0
    )


def _efficient_can(query: Tensor, key: Tensor, value: Tensor, capability: tuple[int, int]) -> bool:
    if query.dtype == torch.bfloat16 and capability < (8, 0):
        return False
    if query.dtype not in (*_HALF, torch.float32) or query.shape[1] != key.shape[1]:
        return False
    alignment = gemm_alignment(query.dtype, capability)
    return (
        query.shape[-1] == key.shape[-1]
        and query.shape[-1] % alignment == 0
        and value.shape[-1] % alignment == 0
    )


def gemm_alignment(dtype: torch.dtype, capability: tuple[int, int]) -> int:
    """Return what a head's width must be a multiple of for the memory-efficient kernel."""
    is_half = dtype in _HALF
    tensor_cores = capability >= (8, 0) or (capability >= (7, 0) and is_half)
    alignment = 4 if capability >= (8, 0) else 1
    return max(alignment, 128 // (16 if is_half else 32)) if tensor_cores else alignment


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    capability: tuple[int, int],
) -> Tensor:
    """Return attention by the kernel that torch would choose."""
    chosen = attention_kernel(query, key, value, mask, capability)
    if chosen == "flash":
        return _flash(query, key, value, dropout, is_causal, scale)
    if mask is not None and mask.dtype == torch.bool:
        mask = additive_mask(mask, query.dtype)
    if chosen == "efficient":
        if mask is not None:
            mask = aligned_mask(mask).expand(*query.shape[:3], key.shape[2])
        keep = any(tensor.requires_grad for tensor in (query, key, value)) and torch.is_grad_enabled()
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, mask, keep, dropout, is_causal, scale=scale
        )[0]
    return written_out(query, key, value, mask, dropout, is_causal, scale, enable_gqa)


def _flash(
    query: Tensor, key: Tensor, value: Tensor, dropout: float, is_causal: bool, scale: float | None
) -> Tensor:
    """Pad the heads' width to a multiple of 8, as torch does before the kernel."""
    width = query.shape[-1]
    missing = -width % 8
    if missing:
        query, key, value = (functional.pad(tensor, (0, missing)) for tensor in (query, key, value))
    scale = 1 / math.sqrt(width) if scale is None else scale
    out = aten._scaled_dot_product_flash_attention(query, key, value, dropout, is_causal, False, scale=scale)[
        0
    ]
    return out[..., :width] if missing else out


def additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a Boolean mask as numbers to add (convert_boolean_attn_mask)."""
    minus_infinity = torch.full((), -math.inf, dtype=dtype, device=mask.device)
    zero = torch.zeros((), dtype=dtype, device=mask.device)
    return torch.where(mask, zero, minus_infinity)


def aligned_mask(mask: Tensor) -> Tensor:
    """Pad a mask's rows to a multiple of 8 where it is not aligned already (preprocess_mask, pad_bias)."""
    last = mask.shape[-1]
    aligned = last == 1 or mask.stride(-1) != 1 or all(s % 8 == 0 for s in mask.stride()[:-1])
    if aligned:
        return mask
    return functional.pad(mask, (0, -last % 8 or 8))[..., :last]


def written_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """Compute attention from matrix products; the mask is added in place (_scaled_dot_product_attention_math)."""
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (tensor.repeat_interleave(groups, -3) for tensor in (key, value))
    root = math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        square = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
        mask = additive_mask(square.tril(), query.dtype)
    weights = torch.matmul(query * root, key.transpose(-2, -1) * root)
    if mask is not None:
        weights.add_(mask)
    weights = functional.softmax(weights, -1)
    if dropout > 0:
        weights = functional.dropout(weights, dropout)
    return torch.matmul(weights, value)


def flash_forward(mode: DatalessMode, func: object, args: tuple, kwargs: dict) -> tuple:
    """Keep the kernel's random state on the card: two numbers and one that is unused (mha_fwd)."""
    out = list(mode.run(func, args, kwargs))
    out[6] = mode.empty((2,), torch.uint64)
    out[7] = mode.empty((), torch.uint64)
    return tuple(out)


def efficient_forward(mode: DatalessMode, func: object, args: tuple, kwargs: dict) -> tuple:
    """Keep the random state of dropout on the host (_efficient_attention_forward, outside of graphs)."""
    out, logsumexp, *_ = mode.run(func, args, kwargs)
    return out, logsumexp, torch.empty((), dtype=torch.int64), torch.empty((), dtype=torch.int64)


def flash_backward(mode: DatalessMode, func: object, args: tuple, kwargs: dict) -> tuple:
    """Sum the query's gradient in FP32, and for grouped heads one gradient a query head (mha_bwd)."""
    query, key = args[1], args[2]
    batch, heads, length, width = query.shape
    rows, columns = -(-length // 128) * 128, -(-width // 32) * 32
    gradients = mode.entered(mode.run(func, args, kwargs))
    scratch = [
        mode.temporary((batch, heads, rows), torch.float32),
        mode.temporary((batch, rows, heads, columns), torch.float32),
    ]
    if key.shape[1] != heads:
        scratch += [mode.temporary((batch, key.shape[2], heads, width), query.dtype) for _ in range(2)]
    scratch.clear()
    return gradients


def efficient_backward(mode: DatalessMode, func: object, args: tuple, kwargs: dict) -> tuple:
    """Make the row sums of gradient times output, in FP32 outside the kernel (_efficient_attention_backward)."""
    out = args[5]
    gradients = mode.entered(mode.run(func, args, kwargs))
    product = mode.temporary(out.shape, torch.float32) if out.dtype == torch.float32 else None
    sums = mode.temporary(out.shape[:3], torch.float32)
    del product, sums
    return gradients
