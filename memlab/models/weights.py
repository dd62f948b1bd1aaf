"""How the weights of transformers begin."""

from torch import nn


def draw_weights(model: nn.Module, residual_std: float) -> None:
    """Draw matrices with a deviation of 0.02, those named residual_projection with `residual_std`.

    Biases become 0; what else has one dimension, the norms, stays at 1.
    """
    for name, parameter in model.named_parameters():
        if name.endswith("residual_projection.weight"):
            nn.init.normal_(parameter, std=residual_std)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.02)
