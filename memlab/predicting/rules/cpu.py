"""The CPU's rules."""

from typing import Any

import torch
from torch import Tensor

from memlab.predicting.dataless import DatalessMode, Rule

aten = torch.ops.aten


def batch_norm(mode: DatalessMode, func: Any, args: Any, kwargs: Any) -> tuple[Tensor, ...]:
    """Keep the statistics of a low-precision input in its weight's FP32 (aten/native/batch_norm.h, mixed types)."""
    out, mean, inverse_deviation = mode.run(func, args, kwargs)
    weight = args[1]
    if weight is None or weight.dtype == mean.dtype:
        return out, mean, inverse_deviation
    return out, mode.like(mean, weight.dtype), mode.like(inverse_deviation, weight.dtype)


RULES: dict[Any, Rule] = {aten.native_batch_norm.default: batch_norm}
