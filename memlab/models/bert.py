"""BERT: an encoder that sees both directions, with a head for classes of whole samples.

Devlin et al. 2018, https://arxiv.org/abs/1810.04805; normalisation after each residual sum.
"""

from torch import Tensor, nn

from memlab.models.attention import GroupedAttention
from memlab.models.feed_forward import FeedForward
from memlab.models.weights import draw_weights

SEGMENTS = 2
"""A sample may be two pieces of text, told apart by an embedding."""
EPSILON = 1e-12


class Bert(nn.Module):
    """Classify pairs of texts by what the first position has gathered."""

    def __init__(
        self,
        *,
        layers: int,
        d_model: int,
        heads: int,
        positions: int,
        vocabulary_size: int,
        classes: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary_size, d_model)
        self.position_embedding = nn.Embedding(positions, d_model)
        self.segment_embedding = nn.Embedding(SEGMENTS, d_model)
        self.norm = nn.LayerNorm(d_model, eps=EPSILON)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(PostNormBlock(d_model, heads, dropout) for _ in range(layers))
        self.pooler = nn.Sequential(nn.Linear(d_model, d_model), nn.Tanh())
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(d_model, classes))
        draw_weights(self, residual_std=0.02)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        """Map tokens and segments, int64 (batch, seq) each, to logits (batch, classes)."""
        positions = self.position_embedding.weight[: tokens.shape[1]]  # (seq, d_model)
        x = self.token_embedding(tokens) + self.segment_embedding(segments) + positions
        x = self.dropout(self.norm(x))  # (batch, seq, d_model)
        for block in self.blocks:
            x = block(x)
        return self.head(self.pooler(x[:, 0]))


class PostNormBlock(nn.Module):
    """Attention, then a feed-forward network; each is added to its input, and the sum normalised."""

    def __init__(self, d_model: int, heads: int, dropout: float) -> None:
        super().__init__()
        common = {"d_model": d_model, "biases": True, "dropout": dropout}
        self.attention = GroupedAttention(heads=heads, key_value_heads=heads, causal=False, **common)
        self.attention_norm = nn.LayerNorm(d_model, eps=EPSILON)
        self.feed_forward = FeedForward(width=4 * d_model, tanh=False, **common)
        self.feed_forward_norm = nn.LayerNorm(d_model, eps=EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, seq, d_model) to the same shape."""
        x = self.attention_norm(x + self.attention(x))
        return self.feed_forward_norm(x + self.feed_forward(x))
