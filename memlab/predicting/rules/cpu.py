"""The CPU's rules."""

from typing import Any

import torch
from torch import Tensor

from memlab.predicting.dataless import DatalessMode, Rule
from memlab.predicting.rules import kernels

aten = torch.ops.aten


def statistics(mode: DatalessMode, func: Any, args: Any, kwargs: Any) -> tuple[Tensor, ...]:
    """Keep the statistics of a normalised low-precision input in its weight's FP32 (is_mixed_type in ATen)."""
    out, mean, deviation = mode.run(func, args, kwargs)
    weight = args[_WEIGHT[func]]
    if weight is None or weight.dtype == mean.dtype:
        return out, mean, deviation
    return out, mode.like(mean, weight.dtype), mode.like(deviation, weight.dtype)


def group_norm_gradient(mode: DatalessMode, func: Any, args: Any, kwargs: Any) -> tuple[Tensor | None, ...]:
    """Give the input's gradient the input's type (native_group_norm_backward in ATen)."""
    gradient, *others = mode.run(func, args, kwargs)
    source = args[1]
    if gradient is not None and gradient.dtype != source.dtype:
        gradient = mode.empty(gradient.shape, source.dtype, gradient.stride())
    return gradient, *others


_WEIGHT = {
    aten.native_batch_norm.default: 1,
    aten.native_group_norm.default: 1,
    aten.native_layer_norm.default: 2,
}
"""Where the weight stands among the arguments."""
RULES: dict[Any, Rule] = {
    **dict.fromkeys(_WEIGHT, statistics),
    **dict.fromkeys(kernels.EMBEDDINGS, kernels.embedding),
    aten.native_group_norm_backward.default: group_norm_gradient,
}
