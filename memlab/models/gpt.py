"""A decoder-only transformer: GPT-2's architecture, with a choice of normalisation."""

import math
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from memlab.models.norms import feature_norm
from memlab.plan import Norm


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The shape of one GPT."""

    layers: int
    d_model: int
    heads: int
    sequence_length: int
    """Positions that have been given an embedding: the longest input."""
    vocabulary_size: int
    norm: Norm = "layer"
    dropout: float = 0.0

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.heads


class GPT(nn.Module):
    """Predict the next token: pre-norm blocks over token and learned position embeddings.

    Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; here the head has
    weights of its own.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocabulary_size, config.d_model)
        self.position_embedding = nn.Embedding(config.sequence_length, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = feature_norm(config.norm, config.d_model)
        self.head = nn.Linear(config.d_model, config.vocabulary_size, bias=False)
        self._initialise()

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens, int64 (batch, seq), to logits (batch, seq, vocab); seq is at most sequence_length."""
        seq = tokens.shape[1]
        if seq > self.config.sequence_length:
            raise ValueError(
                f"the input has {seq} tokens and this model positions for {self.config.sequence_length}; "
                "shorten the input or build the model with a larger sequence_length."
            )
        positions = self.position_embedding.weight[:seq]  # (seq, d_model)
        x = self.dropout(self.token_embedding(tokens) + positions)  # (batch, seq, d_model)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def _initialise(self) -> None:
        """Draw the weights as GPT-2 does: narrower where a layer adds to the residual stream."""
        for name, parameter in self.named_parameters():
            if name.endswith("residual_projection.weight"):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * self.config.layers))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim == 2:  # the rest, of one dimension, are norms: they begin at 1
                nn.init.normal_(parameter, std=0.02)


class Block(nn.Module):
    """Attention, then a feed-forward network, each added to the residual stream."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = feature_norm(config.norm, config.d_model)
        self.attention = Attention(config)
        self.feed_forward_norm = feature_norm(config.norm, config.d_model)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, seq, d_model) to the same shape."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Attention(nn.Module):
    """Causal self-attention over several heads, by torch's fused kernel where there is one."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads, self.head_width = config.heads, config.head_width
        self.query_key_value = nn.Linear(config.d_model, 3 * config.d_model)
        self.residual_projection = nn.Linear(config.d_model, config.d_model)
        self.attention_dropout = config.dropout
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, seq, d_model) to the same shape."""
        batch, seq, d_model = x.shape
        parts = self.query_key_value(x).view(batch, seq, 3, self.heads, self.head_width)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)  # each (batch, heads, seq, head_width)
        y = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, dropout_p=self.attention_dropout if self.training else 0.0
        )
        y = y.transpose(1, 2).reshape(batch, seq, d_model)
        return self.dropout(self.residual_projection(y))


class FeedForward(nn.Module):
    """Two matrices with a GELU between them, four times as wide inside."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.expansion = nn.Linear(config.d_model, 4 * config.d_model)
        self.residual_projection = nn.Linear(4 * config.d_model, config.d_model)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, seq, d_model) to the same shape."""
        y = functional.gelu(self.expansion(x))  # (batch, seq, 4 * d_model)
        return self.dropout(self.residual_projection(y))
