"""Self-attention over several heads, by torch's fused kernel where there is one."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from memlab.models.rotary import Rotation, rotate


class Attention(nn.Module):
    """One matrix makes queries, keys and values, as in GPT-2 and ViT."""

    def __init__(self, *, d_model: int, heads: int, biases: bool, dropout: float, causal: bool) -> None:
        super().__init__()
        self.heads, self.head_width, self.causal = heads, d_model // heads, causal
        self.query_key_value = nn.Linear(d_model, 3 * d_model, bias=biases)
        self.residual_projection = nn.Linear(d_model, d_model, bias=biases)
        self.attention_dropout = dropout
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, rotation: Rotation | None = None) -> Tensor:
        """Map (batch, seq, d_model) to the same shape; `rotation` turns queries and keys."""
        batch, seq, d_model = x.shape
        parts = self.query_key_value(x).view(batch, seq, 3, self.heads, self.head_width)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)  # each (batch, heads, seq, head_width)
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        y = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            is_causal=self.causal,
            dropout_p=self.attention_dropout if self.training else 0.0,
        )
        y = y.transpose(1, 2).reshape(batch, seq, d_model)
        return self.dropout(self.residual_projection(y))


class GroupedAttention(nn.Module):
    """Queries, keys and values have a matrix each; groups of query heads may share a key and a value head.

    Ainslie et al. 2023, https://arxiv.org/abs/2305.13245; with as many key-value heads as heads it is
    plain attention, as in LLaMA-7B and BERT.
    """

    def __init__(
        self, *, d_model: int, heads: int, key_value_heads: int, biases: bool, dropout: float, causal: bool
    ) -> None:
        super().__init__()
        self.heads, self.key_value_heads = heads, key_value_heads
        self.head_width, self.causal = d_model // heads, causal
        shared_width = key_value_heads * self.head_width
        self.query = nn.Linear(d_model, d_model, bias=biases)
        self.key = nn.Linear(d_model, shared_width, bias=biases)
        self.value = nn.Linear(d_model, shared_width, bias=biases)
        self.residual_projection = nn.Linear(d_model, d_model, bias=biases)
        self.attention_dropout = dropout
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, rotation: Rotation | None = None) -> Tensor:
        """Map (batch, seq, d_model) to the same shape; `rotation` turns queries and keys."""
        query, key, value = (self._split(matrix(x)) for matrix in (self.query, self.key, self.value))
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        y = self._attend(query, key, value)  # (batch, heads, seq, head_width)
        return self.dropout(self.residual_projection(y.transpose(1, 2).reshape(x.shape)))

    def _split(self, features: Tensor) -> Tensor:
        batch, seq, _ = features.shape
        return features.view(batch, seq, -1, self.head_width).transpose(
            1, 2
        )  # (batch, heads, seq, head_width)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        groups = self.heads // self.key_value_heads
        # Flash kernels read a shared head many times. In FP32 no fused kernel of CUDA does, and torch would
        # fall back to a matrix of seq x seq a head: there the heads are copied, as transformers' repeat_kv does.
        in_kernel = groups > 1 and query.dtype in (torch.bfloat16, torch.float16)
        if groups > 1 and not in_kernel:
            key, value = (heads.repeat_interleave(groups, dim=1) for heads in (key, value))
        return functional.scaled_dot_product_attention(
            query,
            key,
            value,
            is_causal=self.causal,
            dropout_p=self.attention_dropout if self.training else 0.0,
            enable_gqa=in_kernel,
        )
