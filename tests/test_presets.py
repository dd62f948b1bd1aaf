"""The presets of real models: exact sizes, and steps on tensors without data. No weight of theirs exists here."""

from functools import cache

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from memlab.catalog import MODELS
from memlab.models import build_model
from memlab.plan import Plan
from memlab.workload import prepare_model, workload_for

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "vit-b/16": 86_567_656,
    "resnet50": 25_557_032,
    "llama-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "mistral-7b": 7_241_732_096,
}
PRESETS = [name for name, card in MODELS.items() if not card.small]


def on_meta(plan: Plan) -> nn.Module:
    with torch.device("meta"):
        return build_model(plan)


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@cache
def parameters_of(model: str) -> int:
    return size(on_meta(Plan(model=model)))


@pytest.mark.parametrize(("model", "parameters"), PUBLISHED.items())
def test_a_preset_has_as_many_parameters_as_the_published_model(model: str, parameters: int) -> None:
    assert parameters_of(model) == parameters


def test_the_body_of_bert_has_as_many_parameters_as_the_published_one() -> None:
    model = on_meta(Plan(model="bert-base"))

    assert size(model) - size(model.head) == 109_482_240


@pytest.mark.parametrize("model", MODELS)
def test_the_catalog_knows_how_many_parameters_each_model_has(model: str) -> None:
    assert parameters_of(model) == MODELS[model].parameters


def test_the_published_models_are_presets_and_large() -> None:
    assert set(PRESETS) == {*PUBLISHED, "bert-base"}
    assert [name for name, card in MODELS.items() if card.small] == [
        "mlp",
        "convnet",
        "gpt-tiny",
        "gpt-small",
    ]


@pytest.mark.parametrize("model", ["gpt2", "bert-base", "llama-7b"])
def test_the_sequence_length_of_a_plan_does_not_change_the_parameters(model: str) -> None:
    assert size(on_meta(Plan(model=model, sequence_length=16))) == MODELS[model].parameters


def test_rotary_positions_have_no_end_and_learned_ones_have() -> None:
    assert Plan(model="llama-7b", sequence_length=100_000).sequence_length == 100_000
    assert [MODELS[name].context for name in ("gpt2", "bert-base", "llama-7b")] == [1024, 512, None]


@pytest.mark.parametrize("model", PRESETS)
def test_a_micro_step_of_a_preset_runs_on_tensors_without_data(model: str) -> None:
    length = None if MODELS[model].sequence_length is None else 16
    plan = Plan(model=model, sequence_length=length, dropout=0.1)
    workload = workload_for(plan)
    batch = workload.batch(range(2))

    with FakeTensorMode() as mode:
        network = prepare_model(workload, plan)
        if MODELS[model].sequence_length:
            network.blocks = network.blocks[:2]  # the others are the same again
        with torch.autocast("cpu", torch.bfloat16):
            loss = workload.loss_sum(network, tuple(mode.from_tensor(tensor) for tensor in batch))
        loss.backward()

    assert loss.dtype == torch.float32 and loss.shape == ()
    assert all(weight.grad is not None for weight in network.parameters())


@pytest.mark.parametrize(
    ("model", "widths"),
    [
        # per layer, inputs + outputs of each matrix: queries, keys, values, projection; then the MLP's
        ("llama-7b", 4 * (4096 + 4096) + 3 * (4096 + 11_008)),
        ("llama-3-8b", 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14_336)),
        ("gpt2", (768 + 3 * 768) + 2 * 768 + 2 * (768 + 4 * 768)),
        ("bert-base", 4 * (768 + 768) + 2 * (768 + 4 * 768)),
        ("vit-b/16", (768 + 3 * 768) + 2 * 768 + 2 * (768 + 4 * 768)),
    ],
)
def test_adapters_stand_by_every_matrix_of_attention_and_mlp(model: str, widths: int) -> None:
    network = on_meta(Plan(model=model, lora_rank=8))

    trained = sum(weight.numel() for weight in network.parameters() if weight.requires_grad)

    assert trained == MODELS[model].layers * 8 * widths
    assert size(network) == MODELS[model].parameters + trained


def test_a_tied_head_is_the_token_embedding() -> None:
    network = on_meta(Plan(model="gpt2"))

    shapes = [tuple(weight.shape) for weight in network.parameters()]

    assert shapes.count((50_257, 768)) == 1
    assert network(torch.zeros(1, 4, dtype=torch.int64, device="meta")).shape == (1, 4, 50_257)


@pytest.mark.parametrize("model", ["vit-b/16", "resnet50"])
def test_models_for_photographs_see_enlarged_digits(model: str) -> None:
    workload = workload_for(Plan(model=model))
    images, labels = workload.batch([0, 5])
    small, same = workload_for(Plan(model="mlp")).batch([0, 5])

    assert (images.shape, images.dtype) == ((2, 3, 224, 224), torch.float32)
    assert torch.equal(images[:, :, ::28, ::28] * 16, small.float().expand(-1, 3, -1, -1))
    assert torch.equal(images[:, 0, 27::28, 27::28], images[:, 2, ::28, ::28])
    assert torch.equal(labels, same) and len(workload) == 1797


def test_every_second_pair_of_texts_belongs_together() -> None:
    workload = workload_for(Plan(model="bert-base", sequence_length=20))
    whole = workload_for(Plan(sequence_length=20))
    far = 7 + len(workload) // 2

    tokens, segments, labels = workload.batch([6, 7])

    assert labels.tolist() == [1, 0]
    assert segments.tolist() == [[0] * 10 + [1] * 10] * 2
    assert torch.equal(tokens[0], whole.batch([6])[0][0])
    assert torch.equal(tokens[1, :10], whole.batch([7])[0][0, :10])
    assert torch.equal(tokens[1, 10:], whole.batch([far])[0][0, 10:])
    assert workload.count((tokens, segments, labels)) == 2
