"""The cards that learners have: memory as torch sees it, what they compute in, and how fast, as published."""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from typing_extensions import assert_never

from memlab.units import MiB

NumberFormat = Literal["fp32", "tf32", "fp16", "bf16"]


class CardError(ValueError):
    """Says in one sentence that a card is not in the table, and what is."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """One kind of GPU. Sources stand beside the rows of the table."""

    name: str
    """As commands and plans name it: "a100-80gb"."""
    title: str
    memory_bytes: int
    """`torch.cuda.get_device_properties(...).total_memory`, which is less than the GB on the box."""
    memory_source: str
    compute_capability: tuple[int, int]
    bandwidth: float
    """Memory bandwidth in bytes per second, as published."""
    fp32_tflops: float
    """Peaks in 1e12 operations per second: dense, with FP32 accumulation, as published."""
    tf32_tflops: float | None
    """None: no TF32, which begins with compute capability 8.0."""
    fp16_tflops: float
    bf16_tflops: float | None
    """None: BF16 is emulated, with no unit of its own."""
    speed_source: str

    @property
    def has_bf16(self) -> bool:
        """Say whether the card computes in BF16 by itself; torch also says yes where it emulates it.

        https://github.com/pytorch/pytorch/issues/148322
        """
        return self.compute_capability >= (8, 0)

    def flops(self, number_format: NumberFormat) -> float:
        """Return the published peak in operations per second; where there is no unit for it, FP32's."""
        match number_format:
            case "fp32":
                peak: float | None = self.fp32_tflops
            case "tf32":
                peak = self.tf32_tflops
            case "fp16":
                peak = self.fp16_tflops
            case "bf16":
                peak = self.bf16_tflops
            case _:
                assert_never(number_format)
        return 1e12 * (self.fp32_tflops if peak is None else peak)


def _card(
    name: str,
    title: str,
    memory: tuple[int, str],
    capability: tuple[int, int],
    speeds: tuple[float, float, float | None, float, float | None],
    speed_source: str,
) -> Card:
    """Return a row of the table; `speeds` are GB/s, then TFLOPS in FP32, TF32, FP16 and BF16."""
    bandwidth, fp32, tf32, fp16, bf16 = speeds
    return Card(
        name=name,
        title=title,
        memory_bytes=memory[0],
        memory_source=memory[1],
        compute_capability=capability,
        bandwidth=bandwidth * 1e9,
        fp32_tflops=fp32,
        tf32_tflops=tf32,
        fp16_tflops=fp16,
        bf16_tflops=bf16,
        speed_source=speed_source,
    )


def _printed(mebibytes: int, where: str) -> tuple[int, str]:
    return mebibytes * MiB, f"total_memory={mebibytes}MB (MiB) printed by torch, {where}"


def _message(gibibytes: float, where: str) -> tuple[int, str]:
    return int(gibibytes * 1024) * MiB, f"total capacity of {gibibytes} GiB in torch's message, {where}"


def _polled(size: int) -> tuple[int, str]:
    return size, "total bytes of the device in the runs published with xMem (arXiv 2510.21048)"


# Drivers and error-correcting memory move these by up to 2 %: where several are reported, one of a
# recent Linux driver is taken. Windows shows up to 400 MiB more on the same card.
# GeForce halves the rate of FP16 and BF16 with FP32 accumulation, which is what torch uses.
_AMPERE = "NVIDIA Ampere GA102 whitepaper"
_ADA = "NVIDIA Ada GPU architecture whitepaper"
_HOPPER = "NVIDIA H100 / H200 data sheet (SXM, halved from the figures with sparsity)"
_TABLE = (
    _card(
        "p100-16gb", "Tesla P100 PCIe 16 GB", _printed(16280, "on Colab, torch 1.8"), (6, 0),
        (732, 9.3, None, 18.7, None), "NVIDIA Tesla P100 data sheet",
    ),
    _card(
        "v100-16gb", "Tesla V100 SXM2 16 GB", _printed(16130, "V100-SXM2-16GB"), (7, 0),
        (900, 15.7, None, 125, None), "NVIDIA V100 data sheet",
    ),
    _card(
        "v100-32gb", "Tesla V100 32 GB", _printed(32510, "V100-PCIE-32GB"), (7, 0),
        (900, 15.7, None, 125, None), "NVIDIA V100 data sheet",
    ),
    _card(
        "t4", "Tesla T4 16 GB", _message(14.56, "Zheng-Chong/CatVTON#133"), (7, 5),
        (320, 8.1, None, 65, None), "NVIDIA T4 data sheet",
    ),
    _card(
        "a100-40gb", "A100 40 GB", _printed(40326, "A100-PCIE-40GB, torch 1.9"), (8, 0),
        (1555, 19.5, 156, 312, 312), "NVIDIA A100 data sheet",
    ),
    _card(
        "a100-80gb", "A100 SXM 80 GB", _message(79.25, "HiDream-ai/VAREdit#6"), (8, 0),
        (2039, 19.5, 156, 312, 312), "NVIDIA A100 data sheet",
    ),
    _card(
        "a10g", "A10G 24 GB", _message(22.06, "AWS g5"), (8, 6),
        (600, 31.5, 35, 70, 70), "NVIDIA A10G data sheet for AWS",
    ),
    _card(
        "rtx-3060", "GeForce RTX 3060 12 GB", _polled(12_622_168_064), (8, 6),
        (360, 12.7, 12.7, 25.4, 25.4), f"NVIDIA product page; tensor rates by the ratios of the {_AMPERE}",
    ),
    _card(
        "rtx-3090", "GeForce RTX 3090 24 GB", _printed(24259, "Linux"), (8, 6),
        (936, 35.6, 35.6, 71, 71), _AMPERE,
    ),
    _card(
        "l4", "L4 24 GB", _message(22.03, "the L4s of Kaggle"), (8, 9),
        (300, 30.3, 60, 121, 121), "NVIDIA L4 data sheet, halved from the figures with sparsity",
    ),
    _card(
        "rtx-4060", "GeForce RTX 4060 8 GB", _polled(8_318_222_336), (8, 9),
        (272, 15.1, 15.1, 30.2, 30.2), f"NVIDIA product page; tensor rates by the ratios of the {_ADA}",
    ),
    _card(
        "rtx-4090", "GeForce RTX 4090 24 GB", _message(23.64, "TMElyralab/MuseTalk#76"), (8, 9),
        (1008, 82.6, 82.6, 165.2, 165.2), _ADA,
    ),
    _card(
        "h100-80gb", "H100 SXM 80 GB", _printed(81082, "H100 80GB HBM3, torch 2.0"), (9, 0),
        (3350, 67, 494.5, 989.5, 989.5), _HOPPER,
    ),
    _card(
        "h200", "H200 SXM 141 GB", _printed(143156, "NVIDIA H200 on Modal"), (9, 0),
        (4800, 67, 494.5, 989.5, 989.5), _HOPPER,
    ),
    _card(
        "b200", "B200 SXM 180 GB", _printed(182631, "NVIDIA B200"), (10, 0),
        (8000, 75, 1125, 2250, 2250), "NVIDIA HGX and DGX B200 data sheets, an eighth, halved from sparsity",
    ),
    _card(
        "rtx-5090", "GeForce RTX 5090 32 GB", _message(31.36, "TrajectoryCrafter#20"), (12, 0),
        (1792, 104.8, 104.8, 209.5, 209.5), "NVIDIA RTX Blackwell GPU architecture whitepaper",
    ),
)  # fmt: skip
CARDS: dict[str, Card] = {card.name: card for card in _TABLE}
"""All cards by name, older architectures first."""

ALIASES = {
    "colab": "t4",
    "kaggle": "t4",
    "kaggle-p100": "p100-16gb",
    "p100": "p100-16gb",
    "h100": "h100-80gb",
    "t4-16gb": "t4",
    "a10g-24gb": "a10g",
    "l4-24gb": "l4",
    "h200-141gb": "h200",
    "b200-180gb": "b200",
}
"""Other names. The free Colab GPU is a T4; Kaggle gives two of them, of which a process uses one, or a P100."""

_NOT_THE_MODEL = re.compile(r"nvidia|geforce|tesla|sxm\d?|pcie|hbm\w*|[^a-z0-9]")


def card(name: str | Card) -> Card:
    """Return the card that `name` means: a row's name, an alias, or what the driver calls it.

    A Card of your own is itself.

    >>> card("a100-80gb") is card("NVIDIA A100-SXM4-80GB"), card("Colab").name, card("4090").name
    (True, 't4', 'rtx-4090')
    """
    if isinstance(name, Card):
        return name
    found = _BY_KEY.get(_key(name)) if isinstance(name, str) else None
    if found is None:
        raise CardError(f"card={name!r} is not in the table; {_near(name)}.")
    return CARDS[found]


def _key(name: str) -> str:
    return _NOT_THE_MODEL.sub("", name.lower())


def _near(name: str) -> str:
    """Say which cards `name` may mean."""
    key, name = _key(str(name)), str(name)
    near = [other for other in CARDS if key and _key(other).removeprefix("rtx").startswith(key)]
    near = near or get_close_matches(name.lower(), [*CARDS, *ALIASES], cutoff=0.5)
    return f"choose {' or '.join(near)}" if near else f"choose one of {', '.join(CARDS)}"


_BY_KEY = {
    **{_key(other).removeprefix("rtx"): other for other in CARDS},
    **{_key(other): other for other in CARDS},
    **{_key(alias): other for alias, other in ALIASES.items()},
}
