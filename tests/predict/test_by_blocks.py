"""A few blocks tell exactly what all blocks of a model allocate; where they do not, all are traced."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from torch import nn

import memlab
from memlab import Plan
from memlab.catalog import MODELS
from memlab.predicting.blocks import block_list
from memlab.predicting.repeats import Irregular, Layout, lengthened, pieces
from memlab.predicting.steps import steps_to_trace
from memlab.predicting.trial import Trial, trial
from memlab.workload import Workload, workload_for

AMPERE, CPU = (8, 0), None
NARROW = {
    "gpt": replace(MODELS["gpt2"], layers=8, width=32, heads=2, vocabulary_size=300, context=64),
    "gpt-deep": replace(MODELS["gpt2"], layers=14, width=32, heads=2, vocabulary_size=300, context=64),
    "llama": replace(
        MODELS["llama-3-8b"],
        layers=8,
        width=32,
        heads=4,
        key_value_heads=2,
        vocabulary_size=300,
        feed_forward_width=48,
    ),
    "llama-long": replace(
        MODELS["llama-7b"],
        layers=24,
        width=32,
        heads=4,
        key_value_heads=4,
        vocabulary_size=300,
        feed_forward_width=48,
    ),
    "bert": replace(MODELS["bert-base"], layers=8, width=32, heads=2, vocabulary_size=300, context=64),
    "vit": replace(MODELS["vit-b/16"], layers=8, width=32, heads=2),
    "mlp-deep": replace(MODELS["mlp"], layers=10, width=16),
}
"""Architectures of the catalog, small and deep."""
TWICE = {"gradient_accumulation_steps": 2}
MIXED = {"precision": "bf16-mixed", **TWICE}
TRUE = {"precision": "bf16-true"}
POLICIES = [
    {},
    {"optimizer": "sgd", **TWICE},
    {"optimizer": "sgd", "momentum": 0.9, "zero_grad": "in_place"},
    MIXED,
    {"precision": "fp16-mixed", "clip_norm": 1.0},
    TRUE,
    {**TRUE, "master_weights": True},
    {**TRUE, "master_weights": True, "gradient_precision": "fp32", **TWICE},
    {**TRUE, "master_weights": True, "gradient_precision": "bf16+fp32", **TWICE},
    {**TRUE, "optimizer_state_precision": "fp32"},
    {"activation_checkpointing": "full", **MIXED},
    {"activation_checkpointing": "selective", **MIXED},
    {"foreach": True, "clip_norm": 1.0},
    {"foreach": False, "clip_norm": 1.0, "zero_grad": "before_forward", **TWICE},
    {"fused": True, "zero_grad": "before_backward", **TWICE},
    {"lora_rank": 2, **MIXED},
    {"dropout": 0.1, "gradient_accumulation_steps": 3},
    {"data": "ragged-text", **TWICE},
]
MODELS_TRIED = [
    {"model": "llama"},
    {"model": "llama", **MIXED},
    {"model": "llama", **TRUE, "activation_checkpointing": "full"},
    {"model": "bert", **MIXED},
    {"model": "bert", "lora_rank": 2, "clip_norm": 1.0},
    {"model": "vit", "dropout": 0.1},
    {"model": "mlp-deep", **MIXED},
]


LONG = [
    {"model": "gpt-deep", "lora_rank": 2, "activation_checkpointing": "full", "foreach": True},
    {"model": "llama-long", "activation_checkpointing": "every-2", **MIXED},
    {"model": "llama-long", "activation_checkpointing": "every-3", "clip_norm": 1.0},
]
"""They need more blocks: several seconds each."""
CASES = [
    *((fields, AMPERE) for fields in (*POLICIES, *MODELS_TRIED)),
    *((fields, CPU) for fields in POLICIES[:6]),
    *(pytest.param(fields, CPU, marks=pytest.mark.slow) for fields in (*POLICIES[6:], *MODELS_TRIED)),
    *(pytest.param(fields, rules, marks=pytest.mark.slow) for fields in LONG for rules in (AMPERE, CPU)),
]


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, card in NARROW.items():
        monkeypatch.setitem(MODELS, name, card)


def plan_of(fields: dict) -> Plan:
    """Return a plan for the CPU or for no device in particular, by default of the small GPT."""
    is_text = NARROW[fields.get("model", "gpt")].family in ("gpt", "bert")
    length = {"sequence_length": 16} if is_text else {}
    return Plan(**{"model": "gpt", "micro_batch_size": 2, "device": "cpu", **length, **fields})


def tried(plan: Plan, capability: tuple[int, int] | None, *, in_full: bool) -> Trial:
    workload = workload_for(plan)
    windows = steps_to_trace(plan, workload).traced
    return trial(plan, workload, windows, capability, in_full=in_full)


@pytest.mark.parametrize(("fields", "capability"), CASES, ids=str)
def test_a_few_blocks_tell_exactly_what_all_blocks_do(fields: dict, capability: tuple | None) -> None:
    few, every = (tried(plan_of(fields), capability, in_full=whole) for whole in (False, True))

    assert (few.by_blocks, every.by_blocks) == (True, False)
    assert few.trace == every.trace  # each change, its storage, category, place and module
    assert (few.peak, few.step_peaks) == (every.peak, every.step_peaks)
    assert (few.peaks_by_phase, few.notices) == (every.peaks_by_phase, every.notices)


def test_a_prediction_by_blocks_is_what_a_measurement_finds() -> None:
    plan = plan_of({**TWICE, "steps": 2, "clip_norm": 1.0, "dropout": 0.1})

    predicted, measured = memlab.predict(plan), memlab.measure(plan)

    assert (predicted.peak, predicted.step_peaks) == (measured.peak, measured.step_peaks)
    assert dict(predicted.peaks_by_phase) == dict(measured.peaks_by_phase)
    assert predicted.trace == measured.trace


def test_blocks_that_differ_are_all_traced() -> None:
    plan = Plan(model="resnet50", micro_batch_size=1, device="cpu")
    assert not tried(plan, CPU, in_full=False).by_blocks


def test_a_model_with_few_blocks_is_traced_whole() -> None:
    assert not tried(Plan(model="gpt-tiny", sequence_length=8, device="cpu"), CPU, in_full=False).by_blocks


class Stack(Workload):
    """Blocks to compare; nothing is trained."""

    def __init__(self, *blocks: nn.Module) -> None:
        self.model = nn.Module()
        self.model.blocks = nn.ModuleList(blocks)


def linear(scale: float = 1.0) -> nn.Module:
    block = nn.Linear(2, 2)
    block.scale = scale
    return block


def hooked() -> nn.Module:
    block = linear()
    block.register_forward_hook(lambda module, inputs, output: output)
    return block


def frozen() -> nn.Module:
    return linear().requires_grad_(False)


def pairs() -> Iterator[tuple[str, list[nn.Module]]]:
    """Yield blocks that are not alike, and in what."""
    shared = linear()
    shared_weight = linear()
    shared_weight.weight = shared.weight
    yield "width", [linear(), nn.Linear(2, 2, bias=False)]
    yield "class", [nn.Sequential(nn.GELU()), nn.Sequential(nn.ReLU())]
    yield "setting", [linear(), linear(2.0)]
    yield "type of a setting", [linear(1), linear(1.0)]
    yield "hook", [linear(), hooked()]
    yield "what learns", [linear(), frozen()]
    yield "shared weights", [shared, shared_weight]


@pytest.mark.parametrize(
    ("difference", "blocks"), list(pairs()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_blocks_are_alike_only_in_every_respect(difference: str, blocks: list[nn.Module]) -> None:
    stack = Stack(*blocks)
    assert block_list(stack, stack.model) is None, difference


def test_equal_blocks_are_alike() -> None:
    stack = Stack(linear(), linear())
    assert block_list(stack, stack.model) is stack.model.blocks


def numbers(text: str) -> np.ndarray:
    return np.array([ord(letter) for letter in text])


def test_a_deeper_stream_repeats_what_one_more_block_adds() -> None:
    shallow, deep = numbers("<ababab|cdcdcd>"), numbers("<abababab|cdcdcdcd>")
    parts = pieces(shallow, deep)
    # c refers to the a of the same block, from the last one back.
    refers = np.full(len(deep), -1)
    refers[10:18:2] = [7, 5, 3, 1]

    layout = Layout.of(parts)
    source, place = lengthened(parts, layout.targets(refers), layout, 2)

    assert "".join(chr(deep[index]) for index in source) == "<abababababab|cdcdcdcdcdcd>"
    assert place[14:26:2].tolist() == [11, 9, 7, 5, 3, 1]


@pytest.mark.parametrize("deep", ["<ababa|>", "<ababxy|>", "<abab|z>"])
def test_streams_that_differ_by_more_than_repeats_are_refused(deep: str) -> None:
    with pytest.raises(Irregular):
        pieces(numbers("<abab|>"), numbers(deep))


def test_units_that_refer_in_different_ways_are_refused() -> None:
    parts = pieces(numbers("<123ab"), numbers("<123abab"))
    layout = Layout.of(parts)
    refers = np.array([-1, -1, -1, -1, 1, -1, 3, -1])
    with pytest.raises(Irregular):
        lengthened(parts, layout.targets(refers), layout, 1)
