"""Normalisations by name. All but BatchNorm treat each sample alone."""

from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import assert_never

from memlab.plan import Norm

GROUP_CHANNELS = 8
"""Channels, or features, that GroupNorm normalises together."""


def feature_norm(norm: Norm, features: int) -> nn.Module:
    """Return a normalisation of (batch, features), or of (batch, seq, features) for "layer" and "rms"."""
    match norm:
        case "none":
            return nn.Identity()
        case "batch":
            return FeatureBatchNorm(features)
        case "group":
            return nn.GroupNorm(max(features // GROUP_CHANNELS, 1), features)
        case "layer":
            return nn.LayerNorm(features)
        case "rms":
            return nn.RMSNorm(features, eps=1e-5)  # torch's default eps depends on the precision
        case never:
            assert_never(never)


def channel_norm(norm: Norm, channels: int) -> nn.Module:
    """Return a normalisation of (batch, channels, height, width); "layer" is one group of all channels."""
    match norm:
        case "batch":
            return nn.BatchNorm2d(channels)
        case "layer":
            return nn.GroupNorm(1, channels)
        case _:
            return feature_norm(norm, channels)


class FeatureBatchNorm(nn.BatchNorm1d):
    """BatchNorm of (batch, features) that lets the running statistics stand in for a lone sample.

    One sample has no variance, and torch raises; the last micro-batch of an epoch may be one sample.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, features) to the same shape."""
        if len(x) > 1:
            return super().forward(x)
        return functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        )
