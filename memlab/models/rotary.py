"""Rotary positions: turn queries and keys by angles that grow with the position.

Su et al. 2021, https://arxiv.org/abs/2104.09864, halves paired as in LLaMA: feature i turns with
feature i + head_width / 2.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from typing_extensions import Self

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines, each (seq, head_width)."""


class RotaryPositions(nn.Module):
    """Make the tables of one forward pass, which all blocks share.

    They cost 2 x seq x head_width numbers, once for all layers and heads: autograd keeps them for
    backward, and neither the query nor the key from before the turn.
    """

    inverse_frequencies: Tensor

    def __init__(self, head_width: int, base: float) -> None:
        super().__init__()
        self.head_width, self.base = head_width, base
        self.register_buffer("inverse_frequencies", self._frequencies(None), persistent=False)

    def forward(self, x: Tensor) -> Rotation:
        """Return the tables for x (batch, seq, d_model), in its precision."""
        positions = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)
        angles = torch.outer(positions, self.inverse_frequencies)  # (seq, head_width / 2), FP32
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def _frequencies(self, device: torch.device | None) -> Tensor:
        exponents = torch.arange(0, self.head_width, 2, dtype=torch.float32, device=device) / self.head_width
        return 1.0 / self.base**exponents  # (head_width / 2,)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # model.to(bfloat16) would leave angles that are wrong by whole turns at far positions.
        super()._apply(fn, recurse)
        self.inverse_frequencies = self._frequencies(self.inverse_frequencies.device)
        return self


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn x (batch, heads, seq, head_width); the turn is computed in the tables' precision.

    Under autocast that is FP32, so two temporaries are twice as wide as x; the result is as x was.
    """
    cosines, sines = rotation
    first, second = x.chunk(2, dim=-1)
    return (x * cosines + torch.cat([-second, first], dim=-1) * sines).type_as(x)
