"""Build the model that a plan names."""

from torch import nn
from typing_extensions import assert_never

from memlab.catalog import MODELS, ModelCard
from memlab.data.digits import CLASSES, PIXEL_RANGE, PIXELS
from memlab.models.convnet import ConvNet
from memlab.models.gpt import GPT, GPTConfig
from memlab.models.lora import apply_lora
from memlab.models.mlp import MLP
from memlab.plan import Plan


def build_model(plan: Plan) -> nn.Module:
    """Return the model of `plan` on torch's default device, in FP32, with `plan.lora_rank` applied.

    Its weights come from torch's global random generator.
    """
    model = _bare(plan, MODELS[plan.model])
    if plan.lora_rank:
        apply_lora(model, plan.lora_rank)
    return model


def _bare(plan: Plan, card: ModelCard) -> nn.Module:
    common = {"layers": card.layers, "norm": plan.norm, "dropout": plan.dropout}
    images = {"pixel_range": PIXEL_RANGE, "classes": CLASSES}
    match card.family:
        case "mlp":
            return MLP(pixels=PIXELS, features=card.width, **images, **common)
        case "convnet":
            return ConvNet(channels=card.width, **images, **common)
        case "gpt":
            return GPT(gpt_config(plan, card))
        case never:
            assert_never(never)


def gpt_config(plan: Plan, card: ModelCard) -> GPTConfig:
    """Return the shape of the GPT that `plan` asks for."""
    assert plan.sequence_length is not None and plan.norm is not None  # Plan fills both from the card
    return GPTConfig(
        layers=card.layers,
        d_model=card.width,
        heads=card.heads,
        sequence_length=plan.sequence_length,
        vocabulary_size=card.vocabulary_size,
        norm=plan.norm,
        dropout=plan.dropout,
    )
