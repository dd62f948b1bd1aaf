"""The models that a Plan can name: their sizes and what they can be trained on. No torch here."""

from dataclasses import dataclass
from typing import Literal

Family = Literal["mlp", "convnet", "gpt"]

TEXTS = ("text", "ragged-text", "file:")


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a Plan must know of a model before it is built."""

    family: Family
    data: tuple[str, ...]
    """Data that it can be trained on, the default first; "file:" stands for file:PATH."""
    norms: tuple[str, ...]
    """Normalisations that it can be built with, the default first."""
    layers: int
    """Blocks; activation checkpointing works block by block."""
    width: int
    """d_model of a gpt, hidden features of an mlp, channels of a convnet."""
    heads: int = 1
    """Attention heads (gpt only)."""
    sequence_length: int | None = None
    """Tokens per sample where the plan does not say (gpt only)."""
    vocabulary_size: int = 256
    """Different tokens (gpt only); the text is read byte by byte."""


MODELS: dict[str, ModelCard] = {
    "mlp": ModelCard(
        family="mlp", data=("digits",), norms=("none", "batch", "group", "layer"), layers=4, width=256
    ),
    "convnet": ModelCard(
        family="convnet", data=("digits",), norms=("batch", "group", "layer", "none"), layers=4, width=32
    ),
    "gpt-tiny": ModelCard(
        family="gpt", data=TEXTS, norms=("layer", "rms"), layers=6, width=192, heads=6, sequence_length=128
    ),
    "gpt-small": ModelCard(
        family="gpt", data=TEXTS, norms=("layer", "rms"), layers=8, width=384, heads=6, sequence_length=256
    ),
}
