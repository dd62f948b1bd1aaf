"""What a run trains: a model, its data, its optimizer and its loss. Ours, or one that a user brings."""

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from memlab import models, optimizers
from memlab.catalog import MODELS
from memlab.cross_entropy import CROSS_ENTROPY, chunked_cross_entropy
from memlab.data import (
    Batch,
    Digits,
    EnlargedDigits,
    Paragraphs,
    Samples,
    TextPairs,
    TextWindows,
    manual,
    read_text,
)
from memlab.data.digits import SIDE
from memlab.data.samples import IGNORED
from memlab.plan import Plan, PlanError


class Workload:
    """Bring your own training: say how long the data is, build a model, make a batch.

    The loss is cross entropy unless `loss_sum` says otherwise.

    >>> class Parabola(Workload):
    ...     def __len__(self):
    ...         return 100
    ...     def build_model(self, plan):
    ...         return nn.Linear(1, 1)
    ...     def batch(self, indices):
    ...         x = torch.tensor(indices).unsqueeze(1) / 100
    ...         return x, x**2
    ...     def loss_sum(self, model, batch):
    ...         x, y = batch
    ...         return (model(x) - y).square().sum()
    >>> parabola = Parabola()
    >>> parabola.name, parabola.count(parabola.batch([3, 4, 5]))
    ('Parabola', 3)

    Then `memlab.train(Plan(model="custom"), Parabola())`.
    """

    name: str = ""
    """Shown to people; the class's name where a subclass sets none."""
    couples_samples: bool = False
    """Whether a sample's loss depends on the others in its micro-batch (contrastive losses): then
    accumulating over micro-batches trains another function."""

    def __init_subclass__(cls, **others: object) -> None:
        super().__init_subclass__(**others)
        if "name" not in vars(cls):
            cls.name = cls.__name__

    def __len__(self) -> int:
        """Return the number of samples in one epoch."""
        raise _forgotten(self, "__len__")

    def build_model(self, plan: Plan) -> nn.Module:
        """Return a new model on torch's default device, in FP32; its weights may come from torch's generator.

        Where `plan.lora_rank` is set, `prepare_model` adds the adapters if the model has none yet.
        """
        raise _forgotten(self, "build_model")

    def build_optimizer(self, parameters: Iterable[nn.Parameter], plan: Plan) -> torch.optim.Optimizer:
        """Return the optimizer over `parameters`, the trainable ones, at the peak learning rate."""
        return optimizers.build(parameters, plan)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the samples `indices` as host tensors: inputs, then labels; samples come first in each."""
        raise _forgotten(self, "batch")

    def count(self, batch: Batch) -> int:
        """Return how many losses `loss_sum` adds: whole-numbered labels other than -100, else samples."""
        labels = batch[-1]
        if labels.is_floating_point():
            return len(labels)
        return int(np.count_nonzero(labels.numpy() != IGNORED))  # numpy: no tensor that a meter would see

    def loss_sum(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the sum of all cross entropies of the model's logits (..., classes), FP32 and of shape ().

        `batch` is on the model's device. Labels of -100 count nothing.
        """
        *inputs, labels = batch
        logits = model(*inputs).float()  # as autocast does by itself; BF16 weights need it said
        return CROSS_ENTROPY(logits, labels)

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        """Return the modules that activation checkpointing may recompute: `model.blocks`, where there are any."""
        return list(getattr(model, "blocks", []))


class _CatalogWorkload(Workload):
    """A model of the catalog on data of ours."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def build_model(self, plan: Plan) -> nn.Module:
        """Return the plan's model, with its low-rank adapters."""
        return models.build_model(plan)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the samples `indices`: inputs and labels."""
        return self.samples.batch(indices)


class TextWorkload(_CatalogWorkload):
    """Predict the next byte of a text. Batches are tokens and labels, int64 (batch, seq)."""

    name = "text"

    def __init__(self, samples: Samples, loss_chunks: int = 1) -> None:
        super().__init__(samples)
        self.loss_chunks = loss_chunks

    def loss_sum(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the sum of all cross entropies, of `loss_chunks` pieces of the micro-batch's tokens in turn."""
        if self.loss_chunks == 1:
            return super().loss_sum(model, batch)
        tokens, labels = batch
        features = model(tokens, with_head=False)
        inner = getattr(model, "module", model)  # DDP wraps the model, and its forward must have run
        return chunked_cross_entropy(features, inner.head_weight, labels, self.loss_chunks)


class DigitsWorkload(_CatalogWorkload):
    """Recognise digits. Batches are images and labels, int64 (batch,).

    Images are uint8 (batch, 1, 8, 8), for the models made for them; float32 (batch, 3, 224, 224) for
    those made for photographs, whose further classes stay unused.
    """

    name = "digits"

    def count(self, batch: Batch) -> int:
        """Return the number of images: every one has a label."""
        return len(batch[-1])


class PairsWorkload(_CatalogWorkload):
    """Say whether two pieces of text belong together, as BERT was trained to.

    Batches are tokens and segments, int64 (batch, seq) each, and labels, int64 (batch,).
    """

    name = "text-pairs"


def workload_for(plan: Plan) -> Workload:
    """Return our workload for `plan`; raise PlanError for a custom model, or a text that is none."""
    if plan.model == "custom":
        raise PlanError(
            "model='custom' needs a Workload of yours: pass it as the second argument, as in train(plan, workload), "
            f"or choose one of our models: {', '.join(map(repr, MODELS))}."
        )
    assert plan.data is not None  # Plan fills it from the model
    match plan.data.partition(":")[0]:
        case "digits":
            size = MODELS[plan.model].image_size
            return DigitsWorkload(Digits() if size == SIDE else EnlargedDigits(size))
        case "text":
            return TextWorkload(TextWindows(manual(), _length(plan)), plan.loss_chunks)
        case "ragged-text":
            return TextWorkload(Paragraphs(manual(), _length(plan)), plan.loss_chunks)
        case "text-pairs":
            return PairsWorkload(TextPairs(manual(), _length(plan)))
        case "file":
            return TextWorkload(
                TextWindows(read_text(plan.data.partition(":")[2]), _length(plan)), plan.loss_chunks
            )
        case data:
            raise AssertionError(f"Plan let data={data!r} pass")


def prepare_model(workload: Workload, plan: Plan) -> nn.Module:
    """Return the workload's model with `plan.lora_rank` applied, once.

    Raises PlanError where the workload lacks something, so that it shows before the first step.
    """
    for needed in _NEEDED:
        if getattr(type(workload), needed, None) in (None, getattr(Workload, needed)):
            raise _forgotten(workload, needed)
    if not len(workload):
        raise PlanError(
            f"{type(workload).__name__} has no samples: its __len__ returned 0; give it one at least."
        )
    model = workload.build_model(plan)
    if not isinstance(model, nn.Module):
        raise PlanError(
            f"{type(workload).__name__}.build_model returned a value of type {type(model).__name__}; "
            "return the nn.Module to train."
        )
    for name, weight in chain(model.named_parameters(), model.named_buffers()):
        if is_lazy(weight):
            raise PlanError(
                f"{name} of {type(model).__name__} has no shape before the first batch (a lazy module): "
                f"run one through the model in {type(workload).__name__}.build_model, then return it."
            )
    if plan.lora_rank and not models.has_lora(model):
        models.apply_lora(model, plan.lora_rank)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise PlanError(
            f"{type(model).__name__} has no parameter that requires a gradient: there is nothing to train; "
            "set requires_grad on those that shall learn."
        )
    return model


_NEEDED = {
    "__len__": "__len__(self), the number of samples in one epoch",
    "build_model": "build_model(self, plan), which returns the nn.Module to train",
    "batch": "batch(self, indices), which returns those samples as a tuple of tensors, the labels last",
}


def _forgotten(workload: object, needed: str) -> PlanError:
    return PlanError(
        f"{type(workload).__name__} must define {_NEEDED[needed]}; help(memlab.Workload) shows how."
    )


def _length(plan: Plan) -> int:
    assert plan.sequence_length is not None  # Plan fills it from the model
    return plan.sequence_length
