"""A vision transformer: an image as a sequence of patches.

Dosovitskiy et al. 2020, https://arxiv.org/abs/2010.11929.
"""

import torch
from torch import Tensor, nn

from memlab.models.attention import Attention
from memlab.models.feed_forward import FeedForward
from memlab.models.weights import draw_weights

PATCH = 16
"""Height and width of a patch, in pixels."""
EPSILON = 1e-6


class ViT(nn.Module):
    """Classify colour images by what a token beside the patches has gathered."""

    def __init__(
        self, *, image_size: int, layers: int, d_model: int, heads: int, classes: int, dropout: float
    ) -> None:
        super().__init__()
        patches = (image_size // PATCH) ** 2
        self.patch_embedding = nn.Conv2d(3, d_model, kernel_size=PATCH, stride=PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, d_model))
        self.position_embedding = nn.Parameter(torch.empty(1, patches + 1, d_model))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(EncoderBlock(d_model, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(d_model, eps=EPSILON)
        self.head = nn.Linear(d_model, classes)
        draw_weights(self, residual_std=0.02)
        nn.init.normal_(self.position_embedding, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to logits (batch, classes)."""
        patches = self.patch_embedding(images).flatten(2).transpose(1, 2)  # (batch, patches, d_model)
        x = torch.cat([self.class_token.expand(len(images), -1, -1), patches], dim=1)
        x = self.dropout(x + self.position_embedding)  # (batch, seq, d_model)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class EncoderBlock(nn.Module):
    """A GPT's block that sees both directions."""

    def __init__(self, d_model: int, heads: int, dropout: float) -> None:
        super().__init__()
        common = {"d_model": d_model, "biases": True, "dropout": dropout}
        self.attention_norm = nn.LayerNorm(d_model, eps=EPSILON)
        self.attention = Attention(heads=heads, causal=False, **common)
        self.feed_forward_norm = nn.LayerNorm(d_model, eps=EPSILON)
        self.feed_forward = FeedForward(width=4 * d_model, tanh=False, **common)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, seq, d_model) to the same shape."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))
