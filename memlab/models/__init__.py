"""The models that a Plan can name. Each has `blocks`, on which activation checkpointing works.

Axis names, the same everywhere: batch, seq, d_model, heads, head_width, vocab, features, classes,
channels, height, width.
"""

from memlab.models.bert import Bert
from memlab.models.build import build_model
from memlab.models.convnet import ConvNet
from memlab.models.gpt import GPT, GPTConfig
from memlab.models.lora import apply_lora, has_lora
from memlab.models.mlp import MLP
from memlab.models.resnet import ResNet
from memlab.models.vit import ViT

__all__ = [
    "GPT",
    "MLP",
    "Bert",
    "ConvNet",
    "GPTConfig",
    "ResNet",
    "ViT",
    "apply_lora",
    "build_model",
    "has_lora",
]
