"""The single-GPU guide's runs: BERT-large under the Trainer of early 2022, on torch 1.10.

What that software did otherwise than today's is written out here, each with its reason, so that what is
predicted is what ran.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from benchmarks.published.models import vision
from benchmarks.published.programs import Setup

LENGTH = 512
LABELS = 2
MAX_GRADIENT_NORM = 1.0


class SoftmaxKeepingItsInput(torch.autograd.Function):
    """Softmax as torch had it before 1.11: its backward took the input, for the type alone, and so kept it.

    Source: transformers.pytorch_utils.softmax_backward_data, which passes the input to torch < 1.11 and
    only its dtype to later ones.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, dim: int) -> Tensor:
        """Return the softmax; under autocast in FP32."""
        result = torch.softmax(scores, dim)
        ctx.dim = dim
        ctx.save_for_backward(scores, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the scores, in their type."""
        scores, result = ctx.saved_tensors
        return torch.ops.aten._softmax_backward_data(gradient, result, ctx.dim, scores.dtype), None


def softmax_of_then(scores: Tensor, dim: int = -1, **_: object) -> Tensor:
    """Stand in for `functional.softmax`."""
    return SoftmaxKeepingItsInput.apply(scores, dim)


def gelu_of_then(x: Tensor, **_: object) -> Tensor:
    """Stand in for `functional.gelu`, which autocast ran in FP32 until pytorch#59639 (June 2021).

    The release that ran is known as "about 1.10" alone; with today's list the plain FP16 row is 3.8 % too low.
    """
    return GELU(x.float() if torch.is_autocast_enabled(x.device.type) else x)


GELU = functional.gelu


@contextmanager
def torch_of_then() -> Iterator[None]:
    """Put both in torch's place."""
    today = functional.softmax, functional.gelu
    functional.softmax, functional.gelu = softmax_of_then, gelu_of_then
    try:
        yield
    finally:
        functional.softmax, functional.gelu = today


class AdamWOfThen(torch.optim.Optimizer):
    """transformers' own AdamW: a loop over the parameters, one temporary of each one's size."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 5e-5, "eps": 1e-8, "betas": (0.9, 0.999)})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update every parameter."""
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
                first, second = group["betas"]
                state["exp_avg"].mul_(first).add_(weight.grad, alpha=1 - first)
                state["exp_avg_sq"].mul_(second).addcmul_(weight.grad, weight.grad, value=1 - second)
                denominator = state["exp_avg_sq"].sqrt().add_(group["eps"])
                weight.addcdiv_(state["exp_avg"], denominator, value=-group["lr"])


def adafactor(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return transformers' Adafactor as Trainer sets it."""
    from transformers.optimization import Adafactor

    return Adafactor(parameters, lr=5e-5, scale_parameter=False, relative_step=False)


OPTIMIZERS: Mapping[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "adamw": AdamWOfThen,
    "adafactor": adafactor,
}


def bert_large() -> nn.Module:
    """Return the guide's model: attention written out, for there was no fused kernel."""
    vision()  # transformers imports torchvision where it is installed
    import transformers

    configuration = transformers.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, num_labels=LABELS,
        attn_implementation="eager", pad_token_id=None,  # else it reads the tokens, to warn of padding
    )  # fmt: skip
    with torch_of_then():  # a model keeps the activation that it finds
        return transformers.BertForSequenceClassification(configuration)


def technique_program(row: Mapping[str, str]) -> Setup:
    """Return the run of one row; an iteration is one optimizer step."""
    batch, accumulation = int(row["micro_batch_size"]), int(row["gradient_accumulation_steps"])
    half = row["precision"] == "fp16-mixed"

    def setup(device: torch.device) -> Callable[[], None]:
        model = bert_large().to(device).train()
        if row["activation_checkpointing"] == "full":
            model.gradient_checkpointing_enable({"use_reentrant": False})
        updates = OPTIMIZERS[row["optimizer"]](model.parameters())
        lost = torch.zeros((), device=device)

        def autocast() -> AbstractContextManager[object]:
            return torch.autocast(device.type, torch.float16) if half else nullcontext()

        def micro_step() -> None:
            tokens = torch.zeros(batch, LENGTH, dtype=torch.int64).to(device)
            labels = torch.zeros(batch, dtype=torch.int64).to(device)
            with autocast():
                loss = model(input_ids=tokens, labels=labels).loss / accumulation
            loss.backward()
            lost.add_(loss.detach())

        def iterate() -> None:
            with torch_of_then():
                for _ in range(accumulation):
                    micro_step()
            clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM, foreach=False)
            updates.step()
            updates.zero_grad(set_to_none=False)  # the default then

        return iterate

    return setup
