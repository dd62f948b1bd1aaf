"""A small residual convolutional network."""

from torch import Tensor, nn
from torch.nn import functional

from memlab.models.norms import channel_norm
from memlab.plan import Norm


class ConvNet(nn.Module):
    """Classify images of whole-numbered pixels by `layers` residual blocks at full resolution."""

    def __init__(
        self, *, pixel_range: int, channels: int, layers: int, classes: int, norm: Norm, dropout: float
    ) -> None:
        super().__init__()
        self.pixel_range = pixel_range
        self.stem = nn.Conv2d(1, channels, kernel_size=3, padding=1)
        self.blocks = nn.ModuleList(ResidualBlock(channels, norm, dropout) for _ in range(layers))
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images, uint8 (batch, 1, height, width), to logits (batch, classes)."""
        # Bytes travel to the device; they become numbers of the weights' precision there.
        x = images.to(self.stem.weight.dtype) / self.pixel_range
        x = self.stem(x)  # (batch, channels, height, width)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=(2, 3)))


class ResidualBlock(nn.Module):
    """Add to its input what two convolutions make of it."""

    def __init__(self, channels: int, norm: Norm, dropout: float) -> None:
        super().__init__()
        # A normalisation has a bias of its own and would take the convolution's away again.
        convolution = {"kernel_size": 3, "padding": 1, "bias": norm == "none"}
        self.convolution_1 = nn.Conv2d(channels, channels, **convolution)
        self.norm_1 = channel_norm(norm, channels)
        self.convolution_2 = nn.Conv2d(channels, channels, **convolution)
        self.norm_2 = channel_norm(norm, channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to the same shape."""
        y = functional.relu(self.norm_1(self.convolution_1(x)))
        y = self.norm_2(self.convolution_2(y))
        return functional.relu(x + self.dropout(y))
