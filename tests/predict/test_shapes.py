"""What kernels say of their results is what torch's FakeTensorMode says, for every kind of call that plans make."""

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from memlab import Plan
from memlab.predicting import shapes
from memlab.predicting.steps import steps_to_trace
from memlab.predicting.trial import trial
from memlab.workload import workload_for

AMPERE, CPU = (8, 0), None
PLANS = [
    {"model": "gpt-tiny", "sequence_length": 24, "clip_norm": 1.0, "gradient_accumulation_steps": 2},
    {"model": "gpt-tiny", "sequence_length": 24, "precision": "bf16-mixed", "dropout": 0.1},
    {"model": "gpt-tiny", "sequence_length": 24, "precision": "fp16-mixed", "loss_chunks": 3},
    {"model": "gpt-tiny", "sequence_length": 24, "precision": "bf16-true", "lora_rank": 2},
    {"model": "gpt-tiny", "data": "ragged-text", "activation_checkpointing": "selective"},
    {"model": "llama-7b", "sequence_length": 16, "precision": "bf16-mixed"},
    {"model": "bert-base", "sequence_length": 24},
    {"model": "vit-b/16"},
    {"model": "mlp", "precision": "bf16-mixed"},
    {"model": "convnet", "norm": "batch"},
    {"model": "convnet", "norm": "group", "precision": "fp16-mixed"},
]


def known(fields: dict, capability: tuple[int, int] | None) -> dict[Any, Any]:
    """Return what was learnt of the results of a plan's calls."""
    shapes._known.clear()
    plan = Plan(**{"micro_batch_size": 3, "device": "cpu", **fields})
    workload = workload_for(plan)
    trial(plan, workload, steps_to_trace(plan, workload).traced, capability)
    return dict(shapes._known)


CASES = [
    *((fields, CPU) for fields in PLANS[:2]),
    *((fields, AMPERE) for fields in PLANS),
    *(pytest.param(fields, CPU, marks=pytest.mark.slow) for fields in PLANS[2:]),
]


@pytest.mark.parametrize(("fields", "capability"), CASES, ids=str)
def test_kernels_say_what_the_mode_says(
    fields: dict, capability: tuple | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    by_kernel = shapes.Shapes._by_kernel
    monkeypatch.setattr(shapes.Shapes, "_by_kernel", lambda *call: asked.append(call[1]) or by_kernel(*call))
    by_kernels = known(fields, capability)
    assert len(asked) > 10 or fields["model"] == "convnet" and asked
    monkeypatch.setattr(shapes, "KERNELS", frozenset())
    by_the_mode = known(fields, capability)

    assert by_kernels == by_the_mode
    assert len(by_kernels) > 20


def test_tensors_of_another_mode_teach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "_known", {})
    ours, theirs = FakeTensorMode(allow_non_fake_inputs=True), FakeTensorMode()
    answers = shapes.Shapes(ours)
    detach = torch.ops.aten.detach.default
    with theirs:
        another = torch.empty(7)
    with ours:
        own = torch.empty(7)

    answers(detach, (another,), {})
    assert not shapes._known

    assert answers(detach, (own,), {}).untyped_storage() is own.untyped_storage()
    assert shapes._known
