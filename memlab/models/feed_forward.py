"""The feed-forward networks of transformers: each position by itself, wider inside."""

from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import assert_never

from memlab.catalog import FeedForward as Kind


class FeedForward(nn.Module):
    """Two matrices with a GELU between them: exact, or GPT-2's approximation by tanh.

    Either is one operation that keeps its input alone. GPT-2 in transformers composes the tanh form of
    eight operations and keeps more: `record` such a model to see it.
    """

    def __init__(self, *, d_model: int, width: int, tanh: bool, biases: bool, dropout: float) -> None:
        super().__init__()
        self.approximation = "tanh" if tanh else "none"
        self.expansion = nn.Linear(d_model, width, bias=biases)
        self.residual_projection = nn.Linear(width, d_model, bias=biases)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, seq, d_model) to the same shape."""
        y = functional.gelu(self.expansion(x), approximate=self.approximation)  # (batch, seq, width)
        return self.dropout(self.residual_projection(y))


class GatedFeedForward(nn.Module):
    """SwiGLU: a third matrix, through SiLU, gates the expansion. It keeps four tensors of `width`.

    Shazeer 2020, https://arxiv.org/abs/2002.05202.
    """

    def __init__(self, *, d_model: int, width: int, biases: bool, dropout: float) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, width, bias=biases)
        self.expansion = nn.Linear(d_model, width, bias=biases)
        self.residual_projection = nn.Linear(width, d_model, bias=biases)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, seq, d_model) to the same shape."""
        y = functional.silu(self.gate(x)) * self.expansion(x)  # (batch, seq, width)
        return self.dropout(self.residual_projection(y))


def feed_forward(kind: Kind, *, d_model: int, width: int, biases: bool, dropout: float) -> nn.Module:
    """Return the network of that kind."""
    common = {"d_model": d_model, "width": width, "biases": biases, "dropout": dropout}
    match kind:
        case "gelu" | "gelu-tanh":
            return FeedForward(tanh=kind == "gelu-tanh", **common)
        case "swiglu":
            return GatedFeedForward(**common)
        case never:
            assert_never(never)
