"""CUDA's rules, as one table: add a function and a line.

Most of CUDA needs no rule: torch's shape functions describe it. Dropout is one such: torch itself takes the fused
kernel, which keeps a Boolean mask, on this device as on CUDA. Beside this table stand `attention` (which kernel),
`composites` (operators that CUDA takes as one kernel and others in parts) and `autocast`.
"""

from typing import Any

import torch

from memlab.predicting.dataless import Rule
from memlab.predicting.rules import accumulation, attention, kernels

aten = torch.ops.aten

RULES: dict[Any, Rule] = {
    aten.add.Tensor: accumulation.add_in_backward,
    aten.native_layer_norm.default: kernels.contiguous_input,
    **dict.fromkeys(kernels.EMBEDDINGS, kernels.embedding),
    aten.convolution.default: kernels.convolution,
    aten.convolution_backward.default: kernels.convolution_backward,
    aten._scaled_dot_product_flash_attention.default: attention.flash_forward,
    aten._scaled_dot_product_flash_attention_backward.default: attention.flash_backward,
    aten._scaled_dot_product_efficient_attention.default: attention.efficient_forward,
    aten._scaled_dot_product_efficient_attention_backward.default: attention.efficient_backward,
}
