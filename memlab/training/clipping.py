"""Gradient clipping, once per optimizer step."""

from collections.abc import Callable, Iterable

from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

Clip = Callable[[Iterable[nn.Parameter]], Tensor | None]
"""Clips the gradients of some parameters in place; returns their global norm before, where it knows it."""


def clip_for(clip_norm: float | None) -> Clip:
    """Return what limits the global norm of the gradient to `clip_norm`; None: what does nothing."""
    if clip_norm is None:
        return lambda parameters: None
    return lambda parameters: clip_grad_norm_(parameters, clip_norm)
