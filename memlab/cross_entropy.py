"""Cross entropy of a model's logits: of all at once, or of one chunk of tokens after the other.

Each part is a module, so that a meter can say which bytes are its.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from memlab.data.samples import IGNORED


class CrossEntropy(nn.Module):
    """Sum the cross entropies of all labels that are not ignored."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Map FP32 logits (..., classes) and labels (...) to a sum of shape ()."""
        return functional.cross_entropy(
            logits.flatten(0, -2), labels.flatten(), reduction="sum", ignore_index=IGNORED
        )


class Logits(nn.Module):
    """Multiply features by the head's weight, and copy the result to FP32."""

    def forward(self, features: Tensor, weight: Tensor) -> Tensor:
        """Map (rows, d_model) to FP32 logits (rows, vocabulary)."""
        return functional.linear(features, weight).float()


class LogProbabilities(nn.Module):
    """Normalise logits."""

    def forward(self, logits: Tensor) -> Tensor:
        """Map (rows, vocabulary) to the same shape."""
        return functional.log_softmax(logits, dim=-1)


class LogitsGradient(nn.Module):
    """Turn log-probabilities into the gradient of `scale` times the summed loss, in their own memory."""

    def forward(self, log_probabilities: Tensor, labels: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
        """Map (rows, vocabulary) to the same shape, in `dtype`: probability less 1 at the label."""
        counted = labels != IGNORED
        places = labels.clamp_min(0).unsqueeze(1)  # of an ignored label any: its row is multiplied by 0
        gradient = log_probabilities.exp_()
        gradient.scatter_add_(1, places, torch.full_like(places, -1, dtype=gradient.dtype))
        gradient *= (counted * scale).unsqueeze(1)
        return gradient.to(dtype)


# One of each for all: a meter tells modules apart by their identity.
CROSS_ENTROPY = CrossEntropy()
_LOGITS, _LOG_PROBABILITIES, _GRADIENT = Logits(), LogProbabilities(), LogitsGradient()


def chunked_cross_entropy(features: Tensor, weight: Tensor, labels: Tensor, chunks: int) -> Tensor:
    """Return the summed cross entropy of `features @ weight.T`, FP32 and of shape (), chunk by chunk.

    Features (..., d_model), the head's weight (vocabulary, d_model), labels int64 (...), of which -100
    count nothing. The tokens are cut into `chunks`; the logits of one live at a time, and backward
    computes them again (as in Wijmans et al. 2024, "Cut Your Losses", https://arxiv.org/abs/2411.09009).
    The weight's gradient is summed over the chunks in the weight's own precision. Follows autocast.
    """
    kind = features.device.type
    if torch.is_autocast_enabled(kind):
        features = features.to(torch.get_autocast_dtype(kind))
    return _Chunked.apply(features.flatten(0, -2), weight, labels.flatten(), chunks)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, labels: Tensor, chunks: int) -> Tensor:
        casted = weight.to(features.dtype)  # kept until backward, as autocast's copy for nn.Linear is
        ctx.save_for_backward(features, casted, labels)
        ctx.chunks, ctx.weight_dtype = chunks, weight.dtype
        total = torch.zeros((), dtype=torch.float32, device=features.device)
        for rows, targets in zip(features.chunk(chunks), labels.chunk(chunks), strict=True):
            likely = _LOG_PROBABILITIES(_LOGITS(rows, casted))
            total += functional.nll_loss(likely, targets, reduction="sum", ignore_index=IGNORED)
            del likely  # else it lives while the next chunk is computed
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, labels = ctx.saved_tensors
        of_features = torch.empty_like(features)
        of_weight = torch.zeros_like(weight, dtype=ctx.weight_dtype) if ctx.needs_input_grad[1] else None
        parts = (tensor.chunk(ctx.chunks) for tensor in (features, labels, of_features))
        for rows, targets, out in zip(*parts, strict=True):
            likely = _LOG_PROBABILITIES(_LOGITS(rows, weight))
            gradient = _GRADIENT(likely, targets, scale, features.dtype)
            del likely
            torch.mm(gradient, weight, out=out)
            if of_weight is not None:
                _add_product(of_weight, gradient.t(), rows)
            del gradient
        return of_features, of_weight, None, None


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    if total.dtype == left.dtype:
        total.addmm_(left, right)  # without a temporary
    else:
        total += left @ right
