"""The table of cards: what is in it, how it is asked, and that nothing in it contradicts itself."""

from typing import get_args

import pytest

from memlab.memory.beyond import SOURCES, Item, beyond_allocator
from memlab.memory.cards import ALIASES, CARDS, Card, CardError, card
from memlab.units import GiB, MiB

ALL = pytest.mark.parametrize("each", CARDS.values(), ids=lambda each: each.name)


@ALL
def test_a_card_holds_less_than_its_box_says(each: Card) -> None:
    box = int(each.title.split()[-2]) * GiB

    # The 141 and 180 GB of the newest are decimal; the GB of all others are what is called GiB here.
    assert 0.9 * box < each.memory_bytes < box


@ALL
def test_formats_without_a_unit_run_as_fp32(each: Card) -> None:
    assert each.has_bf16 == (each.compute_capability >= (8, 0)) == (each.bf16_tflops is not None)
    assert each.has_bf16 == (each.tf32_tflops is not None)
    assert each.flops("bf16") == (each.flops("fp16") if each.has_bf16 else each.flops("fp32"))
    assert each.flops("fp32") <= each.flops("tf32") <= each.flops("fp16")


@ALL
def test_every_figure_has_a_source(each: Card) -> None:
    assert each.memory_source and each.speed_source


def test_a_t4_has_no_bf16_whatever_torch_says() -> None:
    assert [name for name in CARDS if not CARDS[name].has_bf16] == [
        "p100-16gb",
        "v100-16gb",
        "v100-32gb",
        "t4",
    ]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("a100-80gb", "a100-80gb"),
        ("RTX 4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla T4", "t4"),
        ("colab", "t4"),
        ("kaggle", "t4"),
        ("kaggle-p100", "p100-16gb"),
    ],
)
def test_a_card_answers_to_its_names(said: str, meant: str) -> None:
    assert card(said).name == meant


def test_every_alias_leads_to_a_card() -> None:
    assert {name: card(alias).name for alias, name in ALIASES.items()} == {
        name: name for name in ALIASES.values()
    }
    assert all(card(name) is CARDS[name] for name in CARDS)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("a100", "card='a100' is not in the table; choose a100-40gb or a100-80gb."),
        ("rtx-4080", "card='rtx-4080' is not in the table; choose rtx-4090 or rtx-4060 or rtx-5090."),
        ("mi300", f"card='mi300' is not in the table; choose one of {', '.join(CARDS)}."),
        ("", f"card='' is not in the table; choose one of {', '.join(CARDS)}."),
    ],
)
def test_an_unknown_card_names_what_comes_near(said: str, message: str) -> None:
    with pytest.raises(CardError) as caught:
        card(said)

    assert str(caught.value) == message


@ALL
def test_what_lies_beyond_the_allocator_is_named_and_sourced(each: Card) -> None:
    beyond = beyond_allocator(each)

    assert set(beyond) == set(SOURCES) == set(get_args(Item))
    assert 0 < beyond["cuda_context_low"] < beyond["cuda_context_high"] < 2 * GiB


def test_the_cublas_workspace_is_larger_from_hopper_on() -> None:
    assert beyond_allocator(card("a100-80gb"))["cublas_workspace"] == 8_519_680  # pytorch/pytorch#95668
    assert beyond_allocator(card("h100"))["cublas_workspace"] == 32 * MiB
