"""What CUDA's kernels make beside their results, and where their results are laid out otherwise."""

from typing import Any

import torch
from torch import Tensor

from memlab.predicting.dataless import DatalessMode
from memlab.predicting.refusals import SparseGradient

aten = torch.ops.aten
EMBEDDINGS = (aten.embedding.default, aten._embedding_bag.default)


def contiguous_input(mode: DatalessMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Copy an input that is not contiguous for the length of the call (layer_norm_cuda, expect_contiguous)."""
    source = args[0]
    copy = None if source.is_contiguous() else mode.temporary(source.shape, source.dtype)
    out = mode.entered(mode.run(func, args, kwargs))
    del copy
    return out


def embedding(mode: DatalessMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Refuse sparse gradients: in backward they would end the process."""
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False), **kwargs)
    if given.get("sparse"):
        raise SparseGradient(f"{func} with sparse=True")
    return mode.run(func, args, kwargs)


def convolution(mode: DatalessMode, func: Any, args: Any, kwargs: Any) -> Tensor:
    """Keep channels last where the input or the weight has them so (cudnn_conv_suggest_memory_format)."""
    out = mode.run(func, args, kwargs)
    chosen = channels_last_of(args[0], args[1])
    return out if chosen is None else mode.empty(out.shape, out.dtype, _strides(out, chosen))


def convolution_backward(mode: DatalessMode, func: Any, args: Any, kwargs: Any) -> tuple[Tensor | None, ...]:
    """Keep channels last in the gradients too."""
    gradients = mode.run(func, args, kwargs)
    chosen = channels_last_of(args[1], args[2])
    if chosen is None:
        return gradients
    return tuple(
        grad if grad is None or grad.dim() < 4 else mode.empty(grad.shape, grad.dtype, _strides(grad, chosen))
        for grad in gradients
    )


def channels_last_of(*tensors: Tensor) -> torch.memory_format | None:
    """Return the channels-last format that one of `tensors` has and is not contiguous besides, or None."""
    for tensor in tensors:
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        chosen = formats.get(tensor.dim())
        if chosen is not None and tensor.is_contiguous(memory_format=chosen) and not tensor.is_contiguous():
            return chosen
    return None


def _strides(tensor: Tensor, chosen: torch.memory_format) -> tuple[int, ...]:
    return torch.empty(tensor.shape, device="meta", memory_format=chosen).stride()
