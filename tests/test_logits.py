"""The loss's own memory, told apart in a trace, is what the tensors with one number per class say."""

import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import memlab
from memlab import Plan, Trace
from memlab.cli import main
from memlab.logits import PARTS, logits_memory
from memlab.training.loop import Trainer

VOCABULARY, SEQUENCE, SAMPLES = 256, 40, 4
TEXT = {
    "model": "gpt-tiny",
    "sequence_length": SEQUENCE,
    "micro_batch_size": SAMPLES,
    "gradient_accumulation_steps": 2,
    "steps": 2,
    "device": "cpu",
    "initial_loss_scale": 1.0,
}
TOKENS = SEQUENCE * SAMPLES
PRECISIONS = ("fp32", "bf16-mixed", "fp16-mixed", "bf16-true")


class LogitsByShape(TorchDispatchMode):
    """Counts the live bytes of storages that hold a number for each token of a chunk and each class."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.elements = rows * VOCABULARY
        self.live: dict[int, int] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        storage = out.untyped_storage() if isinstance(out, torch.Tensor) else None
        if storage is not None and out.numel() == self.elements and out.shape[-1] == VOCABULARY:
            if id(storage) not in self.live:
                self.live[id(storage)] = storage.nbytes()
                weakref.finalize(storage, self.live.pop, id(storage))
            self.most = max(self.most, sum(self.live.values()))
        return out


@pytest.mark.parametrize("loss_chunks", [1, 4])
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_the_most_is_what_tensors_of_their_shape_take(precision: str, loss_chunks: int) -> None:
    plan = Plan(**TEXT, precision=precision, loss_chunks=loss_chunks)
    run = memlab.predict(plan)
    found = logits_memory(run)
    trainer = Trainer(plan)
    with LogitsByShape(TOKENS // loss_chunks) as by_shape:
        trainer.step()

    assert found is not None
    assert sum(found.at_most.values()) == by_shape.most


@pytest.mark.parametrize("precision", PRECISIONS)
def test_without_chunks_backward_holds_three_fp32_copies_of_the_logits(precision: str) -> None:
    found = logits_memory(memlab.predict(Plan(**TEXT, precision=precision)))

    copy = TOKENS * VOCABULARY * 4
    # log-probabilities, their gradient, and the logits' gradient while one becomes the other
    assert found is not None and dict(found.at_most) == dict(zip(PARTS, (0, copy, 2 * copy), strict=True))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_chunked_loss_holds_two_fp32_copies_of_one_chunk(precision: str) -> None:
    found = logits_memory(memlab.predict(Plan(**TEXT, precision=precision, loss_chunks=8)))

    copy = TOKENS // 8 * VOCABULARY * 4
    # the logits, which are copies where the head works in low precision, and their log-probabilities
    sizes = (copy, copy, 0) if precision == "fp32" else (0, 2 * copy, 0)
    assert found is not None and dict(found.at_most) == dict(zip(PARTS, sizes, strict=True))


def test_at_the_peak_they_are_within_activations_and_temporaries() -> None:
    run = memlab.predict(Plan(**TEXT, precision="bf16-mixed", optimizer="sgd"))
    found = logits_memory(run)

    assert found is not None
    assert 0 < sum(found.at_peak.values()) <= run.peak["activations"] + run.peak["temporaries"]


def test_a_measured_run_says_what_a_predicted_one_says() -> None:
    plan = Plan(**TEXT, precision="bf16-mixed", loss_chunks=3)

    assert logits_memory(memlab.measure(plan)) == logits_memory(memlab.predict(plan))


def test_a_loss_of_another_kind_is_not_told_apart() -> None:
    run = memlab.predict(Plan(**TEXT))

    assert logits_memory(replace(run, trace=None)) is None
    assert logits_memory(replace(run, trace=Trace.join([]))) is None


def test_the_report_of_a_prediction_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--sequence-length=40", "--micro-batch-size=4", "--steps=1", "--device=cpu"]
    assert main(["predict", *flags]) == main(["predict", *flags, "--loss-chunks=4"]) == 0

    whole, chunked = capsys.readouterr().out.split("of that the loss's own")[1:]
    copy = TOKENS * VOCABULARY * 4
    assert (
        f"{3 * copy:,} B" in whole
        and f"{2 * copy // 4:,} B" in chunked
        and "gradient; in 4 chunks)" in chunked
    )


def test_the_report_of_a_model_with_few_classes_says_nothing_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["predict", "--model=mlp", "--steps=1", "--device=cpu"]) == 0

    assert "the loss's own" not in capsys.readouterr().out
