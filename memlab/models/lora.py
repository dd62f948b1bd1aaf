"""Low-rank adapters: train two thin matrices beside each frozen one."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from memlab.plan import PlanError


class LoraLinear(nn.Module):
    """Add B A x to what a frozen Linear makes of x; B begins at zero, so nothing changes at first.

    Hu et al. 2021, https://arxiv.org/abs/2106.09685, with alpha = rank, so that the scale is 1.
    """

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        like = {"dtype": frozen.weight.dtype, "device": frozen.weight.device}
        self.down = nn.Parameter(torch.empty(rank, frozen.in_features, **like))  # A
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank, **like))  # B
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))  # as nn.Linear draws its own weight

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        return self.frozen(x) + functional.linear(functional.linear(x, self.down), self.up)


def apply_lora(model: nn.Module, rank: int) -> None:
    """Freeze `model` and put trainable adapters of `rank` on every Linear inside `model.blocks`.

    Embeddings, the stem and the head stay frozen as they are. Raises PlanError where `model` has no
    such Linear, or has adapters already.
    """
    targets = [
        (parent, name, child)
        for parent in _modules_of_blocks(model)
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear)
    ]
    if has_lora(model):
        raise PlanError(f"{type(model).__name__} has low-rank adapters already: call apply_lora once.")
    if not targets:
        raise PlanError(
            f"lora_rank={rank} needs nn.Linear layers inside model.blocks, and {type(model).__name__} has none; "
            "set lora_rank=0."
        )
    model.requires_grad_(False)
    for parent, name, linear in targets:
        setattr(parent, name, LoraLinear(linear, rank))


def has_lora(model: nn.Module) -> bool:
    """Say whether `model` has low-rank adapters."""
    return any(isinstance(module, LoraLinear) for module in model.modules())


def _modules_of_blocks(model: nn.Module) -> list[nn.Module]:
    blocks = getattr(model, "blocks", None)
    return [*blocks.modules()] if isinstance(blocks, nn.ModuleList) else []
