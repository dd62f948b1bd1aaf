"""The models of the published runs, by the names in their tables."""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import nn

_KEPT: list[torch.library.Library] = []


@cache
def vision() -> Any:
    """Return torchvision.models beside a CPU build of torch, which lacks two of its operators."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT.append(library)
    import torchvision.models

    return torchvision.models


@cache
def regnet_parameters(name: str) -> Any:
    """Return a RegNet's block parameters; computing them reads tensors, so it is done once, before recording."""
    from torchvision.models.regnet import BlockParams

    sizes = {
        "RegNetX400MF": {"depth": 22, "w_0": 24, "w_a": 24.48, "w_m": 2.54, "group_width": 16},
        "RegNetY400MF": {
            "depth": 16,
            "w_0": 48,
            "w_a": 27.89,
            "w_m": 2.09,
            "group_width": 8,
            "se_ratio": 0.25,
        },
    }
    return BlockParams.from_init_params(**sizes[name])


def convolutional(name: str) -> tuple[Callable[[], nn.Module], int]:
    """Return what builds the convolutional model `name`, and its classes."""
    models = vision()
    if name.startswith("MobeNetV3"):
        size = name.removeprefix("MobeNetV3").lower()
        settings, _ = models.mobilenetv3._mobilenet_v3_conf(f"mobilenet_v3_{size}")
        channels = {"small": 1024, "large": 1280}[size]
        return lambda: models.MobileNetV3(settings, last_channel=channels, num_classes=10), 10
    if name == "MnasNet":
        return lambda: models.MNASNet(alpha=1.0, num_classes=10), 10
    if name.startswith("RegNet"):
        parameters = regnet_parameters(name)
        return lambda: models.RegNet(parameters), 1000
    plain = name.lower().replace("convnext", "convnext_").replace("mobilenetv2", "mobilenet_v2")
    return lambda: getattr(models, plain)(weights=None), 1000


def transformer(name: str) -> Callable[[], nn.Module]:
    """Return what builds the transformer `name` from its configuration."""
    vision()  # transformers imports torchvision where it is installed
    import transformers as t
    from transformers.modeling_attn_mask_utils import AttentionMaskConverter

    # It reads the mask to drop it where all is 1; the real runs had padding.
    AttentionMaskConverter._ignore_causal_mask_sdpa = staticmethod(lambda *args, **kwargs: False)
    gpt2 = t.GPT2Config
    configurations: Mapping[str, Callable[[], Any]] = {
        "gpt2": gpt2,
        "distilgpt2": lambda: gpt2(n_layer=6),
        "Cerebras-GPT-111M": lambda: gpt2(
            n_layer=10, n_inner=3072, activation_function="gelu", attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0
        ),
        "gpt-neo-125M": lambda: t.GPTNeoConfig(
            hidden_size=768, num_layers=12, num_heads=12, max_position_embeddings=2048,
            attention_types=[[["global", "local"], 6]], attention_dropout=0.0, embed_dropout=0.0, resid_dropout=0.0,
        ),
        "opt-125m": t.OPTConfig,
        "opt-350m": lambda: t.OPTConfig(
            hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, ffn_dim=4096, word_embed_proj_dim=512,
            do_layer_norm_before=False,
        ),
        "T5-small": lambda: t.T5Config(decoder_start_token_id=0),
    }  # fmt: skip
    configuration = configurations[name.rpartition("/")[2]]()
    kind = t.AutoModelForSeq2SeqLM if name == "T5-small" else t.AutoModelForCausalLM
    return lambda: kind.from_config(configuration)


ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "relu": nn.ReLU, "leaky_relu": nn.LeakyReLU, "elu": nn.ELU, "gelu": nn.GELU, "mish": nn.Mish, "selu": nn.SELU,
    "swish": nn.SiLU, "silu": nn.SiLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "softplus": nn.Softplus,
}  # fmt: skip


def perceptron(row: Mapping[str, str]) -> Callable[[], nn.Module]:
    """Return what builds the multilayer perceptron of one row."""
    widths = [int(row["input_features"]), *hidden_widths(row)]
    classes = int(row["output_classes"])
    norm, dropout = row["use_batch_norm"] == "True", row["use_dropout"] == "True"
    activation = ACTIVATIONS.get(row["activation"].lower(), nn.ReLU)

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers.append(nn.Linear(before, after))
            layers += [nn.BatchNorm1d(after)] if norm else []
            layers.append(activation())
            layers += [nn.Dropout(float(row["dropout"]))] if dropout else []
        return nn.Sequential(*layers, nn.Linear(widths[-1], classes), nn.Softmax(dim=1))

    return build


def hidden_widths(row: Mapping[str, str]) -> list[int]:
    """Return the outputs of the hidden layers, by the architecture's rule."""
    width, classes, layers = (
        int(row[name]) for name in ("input_features", "output_classes", "hidden_layers")
    )
    step = (width - classes) // layers
    widths = []
    for _ in range(layers + (row["architecture"] == "bottleneck")):
        if row["architecture"] in ("pyramid", "bottleneck"):
            width = max(width // 2, classes)
        elif row["architecture"] == "gradual":
            width = max(width - step, classes)
        widths.append(width)
    return widths
