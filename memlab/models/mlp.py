"""A multi-layer perceptron for small images."""

from torch import Tensor, nn

from memlab.models.norms import feature_norm
from memlab.plan import Norm


class MLP(nn.Module):
    """Classify images of whole-numbered pixels by `layers` hidden blocks of one width."""

    def __init__(
        self,
        *,
        pixels: int,
        pixel_range: int,
        features: int,
        layers: int,
        classes: int,
        norm: Norm,
        dropout: float,
    ) -> None:
        super().__init__()
        self.pixel_range = pixel_range
        self.stem = nn.Linear(pixels, features)
        self.blocks = nn.ModuleList(_block(features, norm, dropout) for _ in range(layers))
        self.head = nn.Linear(features, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images, uint8 (batch, 1, height, width), to logits (batch, classes)."""
        # Bytes travel to the device; they become numbers of the weights' precision there.
        x = images.flatten(1).to(self.stem.weight.dtype) / self.pixel_range  # (batch, pixels)
        x = self.stem(x)  # (batch, features)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _block(features: int, norm: Norm, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(features, features), feature_norm(norm, features), nn.GELU(), nn.Dropout(dropout)
    )
