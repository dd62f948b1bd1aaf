"""ResNet-50: bottleneck blocks in four stages of growing width and falling resolution.

He et al. 2015, https://arxiv.org/abs/1512.03385, with the stride in the 3x3 convolution. Activations are
replaced in place where backward does not need what was there, as torchvision does.
"""

from torch import Tensor, nn
from torch.nn import functional

from memlab.models.norms import channel_norm
from memlab.plan import Norm

STAGES = (3, 4, 6, 3)
"""Blocks of each stage."""
EXPANSION = 4
"""Channels that a block gives out, for one inside."""


class ResNet(nn.Module):
    """Classify colour images. `dropout`, which the original has not, acts before the head."""

    def __init__(self, *, channels: int, classes: int, norm: Norm, dropout: float) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, kernel_size=7, stride=2, padding=3, bias=False)
        self.norm = channel_norm(norm, channels)
        self.blocks = nn.ModuleList()
        inputs = channels
        for stage, count in enumerate(STAGES):
            inside = channels * 2**stage
            for place in range(count):
                stride = 2 if stage and not place else 1
                self.blocks.append(Bottleneck(inputs, inside, stride, norm))
                inputs = inside * EXPANSION
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(inputs, classes)
        self._initialise()

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to logits (batch, classes)."""
        x = functional.relu_(self.norm(self.stem(images)))  # (batch, channels, height / 2, width / 2)
        x = functional.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.dropout(x.mean(dim=(2, 3))))

    def _initialise(self) -> None:
        """Draw the convolutions so that a ReLU after them keeps the gradient's spread."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class Bottleneck(nn.Module):
    """Narrow, look around, widen; add to the input, or to its projection where the shape changes."""

    def __init__(self, inputs: int, inside: int, stride: int, norm: Norm) -> None:
        super().__init__()
        outputs = inside * EXPANSION
        self.convolution_1 = nn.Conv2d(inputs, inside, kernel_size=1, bias=False)
        self.norm_1 = channel_norm(norm, inside)
        self.convolution_2 = nn.Conv2d(inside, inside, kernel_size=3, stride=stride, padding=1, bias=False)
        self.norm_2 = channel_norm(norm, inside)
        self.convolution_3 = nn.Conv2d(inside, outputs, kernel_size=1, bias=False)
        self.norm_3 = channel_norm(norm, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(projection, channel_norm(norm, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, height, width) to (batch, outputs, height / stride, width / stride)."""
        y = functional.relu_(self.norm_1(self.convolution_1(x)))
        y = functional.relu_(self.norm_2(self.convolution_2(y)))
        y = self.norm_3(self.convolution_3(y))
        y += self.shortcut(x)
        return functional.relu_(y)
