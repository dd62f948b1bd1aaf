"""The models that a Plan can name: their sizes and what they can be trained on. No torch here."""

from dataclasses import dataclass, replace
from typing import Literal

Family = Literal["mlp", "convnet", "gpt", "bert", "vit", "resnet"]
FeedForward = Literal["gelu", "gelu-tanh", "swiglu"]

TEXTS = ("text", "ragged-text", "file:")
SMALL = 20_000_000
"""Parameters up to which a model trains in seconds on a laptop's processor."""


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
    """d_model of a transformer, hidden features of an mlp, channels after the stem of a convolutional network."""
    parameters: int
    """Trainable numbers with the default norm and sequence length, exactly; its building is tested against it."""
    heads: int = 1
    """Attention heads (transformers only)."""
    sequence_length: int | None = None
    """Tokens per sample where the plan does not say (text only)."""
    context: int | None = None
    """Positions that have a learned embedding, whatever the plan's sequence_length: the longest input.
    None: as many as the plan asks for, or rotary positions, which have no end."""
    vocabulary_size: int = 256
    """Different tokens (text only); our text is read byte by byte and uses the first 256."""
    key_value_heads: int | None = None
    """Heads of keys and values, which then have matrices of their own; None: one matrix makes queries,
    keys and values, as in GPT-2 (gpt only)."""
    feed_forward: FeedForward = "gelu"
    """Between the matrices of the MLP; "swiglu" has three matrices, the others two (gpt only)."""
    feed_forward_width: int | None = None
    """Features inside the MLP; None: four times d_model (gpt only)."""
    rotary_base: float | None = None
    """Base of rotary positions; None: learned positions (gpt only)."""
    biases: bool = True
    """Whether the matrices of the blocks have biases (gpt only)."""
    tied_head: bool = False
    """Whether the head is the token embedding again (gpt only)."""
    image_size: int = 8
    """Height and width of its images, to which the data is enlarged (images only)."""
    classes: int = 10
    """Classes that it tells apart; the digits are the first ten of them (classifiers only)."""

    @property
    def small(self) -> bool:
        """Whether it trains in seconds on a laptop: the others are for a GPU, or to be predicted."""
        return self.parameters <= SMALL

    @property
    def takes_adapters(self) -> bool:
        """Whether there are attention or MLP matrices inside its blocks, for `lora_rank`."""
        return self.family in ("gpt", "bert", "vit")


_MLP = ModelCard(
    family="mlp",
    data=("digits",),
    norms=("none", "batch", "group", "layer"),
    layers=4,
    width=256,
    parameters=282_378,
)
_CONVNET = ModelCard(
    family="convnet",
    data=("digits",),
    norms=("batch", "group", "layer", "none"),
    layers=4,
    width=32,
    parameters=74_890,
)
_GPT_TINY = ModelCard(
    family="gpt",
    data=TEXTS,
    norms=("layer", "rms"),
    layers=6,
    width=192,
    heads=6,
    sequence_length=128,
    parameters=2_792_448,
)
_GPT_SMALL = replace(_GPT_TINY, layers=8, width=384, sequence_length=256, parameters=14_491_392)

# Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", and the published weights.
_GPT2 = ModelCard(
    family="gpt",
    data=TEXTS,
    norms=("layer",),
    layers=12,
    width=768,
    heads=12,
    sequence_length=1024,
    context=1024,
    vocabulary_size=50_257,
    feed_forward="gelu-tanh",
    tied_head=True,
    parameters=124_439_808,
)

# Touvron et al. 2023, https://arxiv.org/abs/2302.13971. Its 2,048 tokens are the default of all its kind
# here, so that they compare; a plan may ask for more (Llama 2: 4,096; Llama 3: 8,192; Mistral: 32,768).
_LLAMA_7B = ModelCard(
    family="gpt",
    data=TEXTS,
    norms=("rms",),
    layers=32,
    width=4096,
    heads=32,
    key_value_heads=32,
    sequence_length=2048,
    vocabulary_size=32_000,
    feed_forward="swiglu",
    feed_forward_width=11_008,
    rotary_base=10_000.0,
    biases=False,
    parameters=6_738_415_616,
)
# Touvron et al. 2023, https://arxiv.org/abs/2307.09288.
_LLAMA_2_13B = replace(
    _LLAMA_7B,
    layers=40,
    width=5120,
    heads=40,
    key_value_heads=40,
    feed_forward_width=13_824,
    parameters=13_015_864_320,
)
_LLAMA_2_70B = replace(
    _LLAMA_7B,
    layers=80,
    width=8192,
    heads=64,
    key_value_heads=8,
    feed_forward_width=28_672,
    parameters=68_976_648_192,
)
# Grattafiori et al. 2024, https://arxiv.org/abs/2407.21783.
_LLAMA_3_8B = replace(
    _LLAMA_7B,
    key_value_heads=8,
    vocabulary_size=128_256,
    feed_forward_width=14_336,
    rotary_base=500_000.0,
    parameters=8_030_261_248,
)
# Jiang et al. 2023, https://arxiv.org/abs/2310.06825, as of version 0.2: without the sliding window.
_MISTRAL_7B = replace(
    _LLAMA_7B,
    key_value_heads=8,
    feed_forward_width=14_336,
    rotary_base=1_000_000.0,
    parameters=7_241_732_096,
)

# Devlin et al. 2018, https://arxiv.org/abs/1810.04805, with its head for pairs of sentences: 1,538 weights
# beyond the 109,482,240 of the body with its pooler.
_BERT_BASE = ModelCard(
    family="bert",
    data=("text-pairs",),
    norms=("layer",),
    layers=12,
    width=768,
    heads=12,
    sequence_length=512,
    context=512,
    vocabulary_size=30_522,
    classes=2,
    parameters=109_483_778,
)
# Dosovitskiy et al. 2020, https://arxiv.org/abs/2010.11929.
_VIT_B_16 = ModelCard(
    family="vit",
    data=("digits",),
    norms=("layer",),
    layers=12,
    width=768,
    heads=12,
    image_size=224,
    classes=1000,
    parameters=86_567_656,
)
# He et al. 2015, https://arxiv.org/abs/1512.03385, its stride in the 3x3 convolution, as is usual today.
_RESNET50 = ModelCard(
    family="resnet",
    data=("digits",),
    norms=("batch", "group"),
    layers=16,
    width=64,
    image_size=224,
    classes=1000,
    parameters=25_557_032,
)

MODELS: dict[str, ModelCard] = {
    "mlp": _MLP,
    "convnet": _CONVNET,
    "gpt-tiny": _GPT_TINY,
    "gpt-small": _GPT_SMALL,
    "gpt2": _GPT2,
    "gpt2-medium": replace(_GPT2, layers=24, width=1024, heads=16, parameters=354_823_168),
    "gpt2-large": replace(_GPT2, layers=36, width=1280, heads=20, parameters=774_030_080),
    "gpt2-xl": replace(_GPT2, layers=48, width=1600, heads=25, parameters=1_557_611_200),
    "bert-base": _BERT_BASE,
    "vit-b/16": _VIT_B_16,
    "resnet50": _RESNET50,
    "llama-7b": _LLAMA_7B,
    "llama-3-8b": _LLAMA_3_8B,
    "llama-2-13b": _LLAMA_2_13B,
    "llama-2-70b": _LLAMA_2_70B,
    "mistral-7b": _MISTRAL_7B,
}
