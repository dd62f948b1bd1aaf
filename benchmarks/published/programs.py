"""The programs of the published runs, as memlab.record takes them."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Setup = Callable[[torch.device], Callable[[], None]]
ZeroGrad = Literal["before_forward", "before_backward", "after_step"]


def image_program(
    build: Callable[[], nn.Module], classes: int, optimizer: str, batch: int, zero_grad: ZeroGrad
) -> Setup:
    """Return a convolutional run: batch x 3 x 86 x 86, cross entropy, then the largest of the outputs."""

    def setup(device: torch.device) -> Callable[[], None]:
        model = build().to(device)
        updates = optimizer_of(optimizer, model.parameters())

        def batches() -> Iterator[tuple[Tensor, ...]]:
            while True:
                yield torch.empty(batch, 3, 86, 86), torch.zeros(batch, dtype=torch.int64)

        def forward(images: Tensor, labels: Tensor) -> tuple[Any, Tensor]:
            outputs = model(images)
            return outputs, functional.cross_entropy(outputs, labels)

        return iteration(
            batches(), device, forward, updates, zero_grad, lambda outputs: torch.max(outputs, 1)
        )

    return setup


def text_program(
    build: Callable[[], nn.Module], optimizer: str, batch: int, length: int, zero_grad: ZeroGrad
) -> Setup:
    """Return a transformer's run: token numbers, mask and labels of batch x length."""

    def setup(device: torch.device) -> Callable[[], None]:
        model = build()
        updates = optimizer_of(optimizer, model.parameters())
        model.to(device).train()

        def batches() -> Iterator[tuple[Tensor, ...]]:
            while True:
                yield tuple(torch.ones(batch, length, dtype=torch.int64) for _ in range(3))

        def forward(tokens: Tensor, mask: Tensor, labels: Tensor) -> tuple[Any, Tensor]:
            outputs = model(input_ids=tokens, attention_mask=mask, labels=labels)
            return outputs, outputs.loss

        return iteration(batches(), device, forward, updates, zero_grad, lambda outputs: None)

    return setup


def feature_program(build: Callable[[], nn.Module], features: int, batch: int) -> Setup:
    """Return a multilayer perceptron's run: Adam, cross entropy on its softmax."""

    def setup(device: torch.device) -> Callable[[], None]:
        model = build().to(device)
        updates = torch.optim.Adam(model.parameters())

        def batches() -> Iterator[tuple[Tensor, ...]]:
            while True:
                yield torch.empty(batch, features), torch.zeros(batch, dtype=torch.int64)

        def forward(inputs: Tensor, labels: Tensor) -> tuple[Any, Tensor]:
            outputs = model(inputs)
            return outputs, functional.cross_entropy(outputs, labels)

        return iteration(batches(), device, forward, updates, "before_forward", lambda outputs: None)

    return setup


def optimizer_of(name: str, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    """Return torch's optimizer `name` at 1e-3, else with its defaults."""
    return getattr(torch.optim, name)(parameters, lr=1e-3)


def iteration(
    batches: Iterator[tuple[Tensor, ...]],
    device: torch.device,
    forward: Callable[..., tuple[Any, Tensor]],
    updates: torch.optim.Optimizer,
    zero_grad: ZeroGrad,
    afterwards: Callable[[Any], object],
) -> Callable[[], None]:
    """Return one iteration; as a script's variables do, batch, outputs and loss live until the next ones."""
    kept: dict[str, Any] = {}

    def iterate() -> None:
        if zero_grad == "before_forward":
            updates.zero_grad()
        kept["batch"] = tuple(tensor.to(device) for tensor in next(batches))
        outputs, loss = forward(*kept["batch"])
        kept["outputs"], kept["loss"] = outputs, loss
        if zero_grad == "before_backward":
            updates.zero_grad()
        loss.backward()
        updates.step()
        afterwards(outputs)
        if zero_grad == "after_step":
            updates.zero_grad()

    return iterate
