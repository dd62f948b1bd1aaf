"""A decoder-only transformer: GPT-2's and LLaMA's architectures, and what lies between."""

import math
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from memlab.catalog import FeedForward
from memlab.models.attention import Attention, GroupedAttention
from memlab.models.feed_forward import feed_forward
from memlab.models.norms import feature_norm
from memlab.models.rotary import RotaryPositions, Rotation
from memlab.models.weights import draw_weights
from memlab.plan import Norm


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The shape of one GPT."""

    layers: int
    d_model: int
    heads: int
    sequence_length: int
    """Positions that have been given an embedding: the longest input; unused with rotary positions."""
    vocabulary_size: int
    norm: Norm = "layer"
    dropout: float = 0.0
    key_value_heads: int | None = None
    """Heads of keys and values, which then have matrices of their own; None: one matrix for all three."""
    feed_forward: FeedForward = "gelu"
    feed_forward_width: int | None = None
    """None: four times d_model."""
    rotary_base: float | None = None
    """None: learned positions."""
    biases: bool = True
    tied_head: bool = False
    """Whether the head is the token embedding again."""

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.heads


class GPT(nn.Module):
    """Predict the next token: pre-norm blocks over token embeddings and positions.

    Learned positions are added to the tokens (Radford et al. 2019, "Language Models are Unsupervised
    Multitask Learners"); rotary ones turn queries and keys inside each block (Touvron et al. 2023,
    https://arxiv.org/abs/2302.13971).
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocabulary_size, config.d_model)
        if config.rotary_base is None:
            self.position_embedding = nn.Embedding(config.sequence_length, config.d_model)
        else:
            self.rotary = RotaryPositions(config.head_width, config.rotary_base)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = feature_norm(config.norm, config.d_model)
        self.head = (
            None if config.tied_head else nn.Linear(config.d_model, config.vocabulary_size, bias=False)
        )
        # Narrower where a layer adds to the residual stream, as GPT-2 is.
        draw_weights(self, residual_std=0.02 / math.sqrt(2 * config.layers))

    @property
    def head_weight(self) -> nn.Parameter:
        """The matrix that makes logits of features; shape (vocab, d_model)."""
        return self.token_embedding.weight if self.head is None else self.head.weight

    def forward(self, tokens: Tensor, *, with_head: bool = True) -> Tensor:
        """Map tokens, int64 (batch, seq), to logits (batch, seq, vocab); without head, to its features.

        With learned positions seq is at most sequence_length; rotary ones have no end.
        """
        x = self.token_embedding(tokens)  # (batch, seq, d_model)
        if self.config.rotary_base is None:
            x, rotation = x + self._positions(tokens.shape[1]), None
        else:
            rotation = self.rotary(x)
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x, rotation)
        x = self.norm(x)
        if not with_head:  # a chunked loss applies it piece by piece
            return x
        return functional.linear(x, self.head_weight) if self.head is None else self.head(x)

    def _positions(self, seq: int) -> Tensor:
        if seq > self.config.sequence_length:
            raise ValueError(
                f"the input has {seq} tokens and this model positions for {self.config.sequence_length}; "
                "shorten the input or build the model with a larger sequence_length."
            )
        return self.position_embedding.weight[:seq]  # (seq, d_model)


class Block(nn.Module):
    """Attention, then a feed-forward network, each added to the residual stream."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = feature_norm(config.norm, config.d_model)
        self.attention = _attention(config)
        self.feed_forward_norm = feature_norm(config.norm, config.d_model)
        self.feed_forward = feed_forward(
            config.feed_forward,
            d_model=config.d_model,
            width=config.feed_forward_width or 4 * config.d_model,
            biases=config.biases,
            dropout=config.dropout,
        )

    def forward(self, x: Tensor, rotation: Rotation | None = None) -> Tensor:
        """Map (batch, seq, d_model) to the same shape."""
        x = x + self.attention(self.attention_norm(x), rotation)
        return x + self.feed_forward(self.feed_forward_norm(x))


def _attention(config: GPTConfig) -> nn.Module:
    common = {
        "d_model": config.d_model,
        "heads": config.heads,
        "biases": config.biases,
        "dropout": config.dropout,
        "causal": True,
    }
    if config.key_value_heads is None:
        return Attention(**common)
    return GroupedAttention(key_value_heads=config.key_value_heads, **common)
