"""Build the model that a plan names."""

from dataclasses import replace

from torch import nn
from typing_extensions import assert_never

from memlab.catalog import MODELS, ModelCard
from memlab.data.digits import PIXEL_RANGE, PIXELS
from memlab.models.bert import Bert
from memlab.models.convnet import ConvNet
from memlab.models.gpt import GPT, GPTConfig
from memlab.models.lora import apply_lora
from memlab.models.mlp import MLP
from memlab.models.resnet import ResNet
from memlab.models.vit import ViT
from memlab.plan import Plan


def build_model(plan: Plan, *, layers: int | None = None) -> nn.Module:
    """Return the model of `plan` on torch's default device, in FP32, with `plan.lora_rank` applied.

    `layers` blocks instead of its own number stand for all of them where only what one block does is asked.

    Its weights come from torch's global random generator. Under `torch.device("meta")` or fake tensors
    any of them is built in seconds, without memory.
    """
    card = MODELS[plan.model]
    model = _bare(plan, card if layers is None else replace(card, layers=layers))
    if plan.lora_rank:
        apply_lora(model, plan.lora_rank)
    return model


def _bare(plan: Plan, card: ModelCard) -> nn.Module:
    classes, dropout = card.classes, plan.dropout
    digits = {"layers": card.layers, "norm": plan.norm, "pixel_range": PIXEL_RANGE}
    encoder = {"layers": card.layers, "d_model": card.width, "heads": card.heads}
    match card.family:
        case "mlp":
            return MLP(pixels=PIXELS, features=card.width, classes=classes, dropout=dropout, **digits)
        case "convnet":
            return ConvNet(channels=card.width, classes=classes, dropout=dropout, **digits)
        case "gpt":
            return GPT(gpt_config(plan, card))
        case "bert":
            texts = {"positions": card.context, "vocabulary_size": card.vocabulary_size}
            return Bert(classes=classes, dropout=dropout, **texts, **encoder)
        case "vit":
            return ViT(image_size=card.image_size, classes=classes, dropout=dropout, **encoder)
        case "resnet":
            return ResNet(channels=card.width, classes=classes, norm=plan.norm, dropout=dropout)
        case never:
            assert_never(never)


def gpt_config(plan: Plan, card: ModelCard) -> GPTConfig:
    """Return the shape of the GPT that `plan` asks for."""
    assert plan.sequence_length is not None and plan.norm is not None  # Plan fills both from the card
    return GPTConfig(
        layers=card.layers,
        d_model=card.width,
        heads=card.heads,
        sequence_length=card.context or plan.sequence_length,
        vocabulary_size=card.vocabulary_size,
        norm=plan.norm,
        dropout=plan.dropout,
        key_value_heads=card.key_value_heads,
        feed_forward=card.feed_forward,
        feed_forward_width=card.feed_forward_width,
        rotary_base=card.rotary_base,
        biases=card.biases,
        tied_head=card.tied_head,
    )
