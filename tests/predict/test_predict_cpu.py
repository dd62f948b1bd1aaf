"""On the CPU a prediction is what a measurement finds, to the byte, and nothing is trained."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import memlab
from memlab import Plan, PlanError, Run, Trace, Workload
from memlab.predicting.refusals import RecordingError

TEXT = {"model": "gpt-tiny", "sequence_length": 16, "micro_batch_size": 2}
OWN = (
    {"precision": "bf16-true", "master_weights": True},
    {"precision": "bf16-true", "master_weights": True, "gradient_precision": "fp32"},
    {"precision": "bf16-true", "master_weights": True, "gradient_precision": "bf16+fp32"},
    {"precision": "bf16-true", "optimizer_state_precision": "fp32"},
)
"""BF16 weights with FP32 companions."""


UNSHRUNK = (Phase.explicit, Phase.generate)
"""A smaller plan would fail in the same way, and finding it takes minutes."""


def boundaries(trace: Trace) -> dict[tuple[int, int, int], list[int]]:
    """Return the bytes by category at the end of each phase of each micro-step."""
    places = zip(trace.step.tolist(), trace.micro_step.tolist(), trace.phase.tolist(), strict=True)
    last = {place: change for change, place in enumerate(places)}
    return {place: trace.by_category[change].tolist() for place, change in last.items()}


def agree(plan: Plan, workload: Workload | None = None) -> Run:
    """Assert that prediction and measurement of two steps agree; return the prediction."""
    predicted, measured = memlab.predict(plan, workload=workload), memlab.measure(plan, workload)
    assert boundaries(predicted.trace) == boundaries(measured.trace)
    assert predicted.peak == measured.peak
    assert dict(predicted.peaks_by_phase) == dict(measured.peaks_by_phase)
    assert predicted.step_peaks == measured.step_peaks
    assert predicted.trace.start == measured.trace.start
    assert (predicted.peak_allocated, predicted.peak_reserved) == (
        measured.peak_allocated,
        measured.peak_reserved,
    )
    assert predicted.notices == measured.notices
    return predicted


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a small plan of two steps with at most two micro-steps each."""
    model = draw(st.sampled_from(["mlp", "convnet", "gpt-tiny"]))
    fields = {
        "model": model,
        "micro_batch_size": draw(st.integers(2, 5)),
        "gradient_accumulation_steps": draw(st.integers(1, 2)),
        "precision": draw(st.sampled_from(["fp32", "bf16-mixed", "fp16-mixed", "bf16-true"])),
        "initial_loss_scale": 1.0,  # a step that overflows makes no optimizer state: no prediction knows
        "zero_grad": draw(st.sampled_from(["after_step", "before_forward", "before_backward", "in_place"])),
        "clip_norm": draw(st.sampled_from([None, 1.0])),
        "dropout": draw(st.sampled_from([0.0, 0.1])),
        "optimizer": draw(st.sampled_from(["sgd", "adamw"])),
        "foreach": draw(st.sampled_from([None, True, False])),
        "norm": draw(st.sampled_from([None, "layer", "rms"])),
        "steps": 2,
        "device": "cpu",
    }
    if model == "gpt-tiny":
        fields["sequence_length"] = draw(st.integers(1, 24))
        fields["data"] = draw(st.sampled_from(["text", "ragged-text"]))
        fields["lora_rank"] = draw(st.sampled_from([0, 2]))
    if model != "mlp":
        fields["activation_checkpointing"] = draw(st.sampled_from(["none", "full", "selective", "every-2"]))
    if fields["optimizer"] == "sgd":
        fields["momentum"] = draw(st.sampled_from([0.0, 0.9]))
    if fields["foreach"] is None:
        fields["fused"] = draw(st.sampled_from([None, True]))
    try:
        return Plan(**fields)
    except PlanError:
        return Plan(**{**fields, "norm": None, "data": None, "activation_checkpointing": "none"})


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), phases=UNSHRUNK)
@given(plans())
def test_a_prediction_equals_the_measurement(plan: Plan) -> None:
    agree(plan)


@pytest.mark.parametrize("companions", OWN, ids=str)
def test_weights_with_companions_are_predicted(companions: dict) -> None:
    agree(Plan(**TEXT, **companions, gradient_accumulation_steps=2, steps=2, device="cpu"))


@pytest.mark.parametrize("statistics", ["frozen", "accumulated"])
def test_batch_norm_policies_are_predicted(statistics: str) -> None:
    agree(
        Plan(
            model="convnet",
            norm="batch",
            batch_norm_statistics=statistics,
            micro_batch_size=3,
            gradient_accumulation_steps=2,
            steps=2,
            device="cpu",
        )
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_more_micro_steps_than_two_do_not_move_the_peak(precision: str) -> None:
    fields = {"model": "mlp", "micro_batch_size": 4, "precision": precision, "steps": 3, "device": "cpu"}
    two, five = (memlab.predict(Plan(**fields, gradient_accumulation_steps=k)) for k in (2, 5))
    measured = memlab.measure(Plan(**fields, gradient_accumulation_steps=5))

    assert two.peak.sizes == five.peak.sizes
    assert (five.peak, dict(five.peaks_by_phase)) == (measured.peak, dict(measured.peaks_by_phase))
    assert five.step_peaks == measured.step_peaks


@pytest.mark.parametrize(("micro_batch_size", "k"), [(599, 2), (1000, 1)])
def test_an_epoch_of_two_windows_of_which_one_is_short_hides_no_peak(micro_batch_size: int, k: int) -> None:
    fields = {"micro_batch_size": micro_batch_size, "gradient_accumulation_steps": k}
    plan = Plan(model="mlp", **fields, steps=3, device="cpu")
    predicted, measured = memlab.predict(plan), memlab.measure(plan)

    assert measured.step_peaks[2] > measured.step_peaks[1], "the second window is the short one"
    assert (predicted.peak, predicted.step_peaks) == (measured.peak, measured.step_peaks)
    assert dict(predicted.peaks_by_phase) == dict(measured.peaks_by_phase)


def test_text_of_unequal_lengths_is_predicted_with_its_own_shapes() -> None:
    plan = Plan(model="gpt-tiny", data="ragged-text", sequence_length=64, micro_batch_size=1,
                gradient_accumulation_steps=3, steps=2, device="cpu")  # fmt: skip
    agree(plan)


class Growing(Workload):
    """Samples that are longer later on."""

    def __len__(self) -> int:
        return 8

    def build_model(self, plan: Plan) -> nn.Module:
        return nn.Linear(1, 4)

    def batch(self, indices: list[int]) -> tuple[Tensor, ...]:
        length = 1 + 100 * (7 in indices)
        return torch.ones(len(indices), length, 1), torch.zeros(len(indices), length, dtype=torch.int64)


def test_a_later_larger_micro_batch_is_found() -> None:
    plan = Plan(model="custom", micro_batch_size=1, steps=8, device="cpu")

    predicted, measured = memlab.predict(plan, workload=Growing()), memlab.measure(plan, Growing())

    assert predicted.peak.sizes == measured.peak.sizes


class Looking(Growing):
    """Reads its loss."""

    def loss_sum(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        loss = super().loss_sum(model, batch)
        return loss if loss.item() > 0 else 2 * loss


def test_a_workload_that_reads_data_is_refused_with_its_line() -> None:
    with pytest.raises(RecordingError, match=r"test_predict_cpu\.py:\d+ `return loss if loss\.item\(\) > 0"):
        memlab.predict(Plan(model="custom", micro_batch_size=1, device="cpu"), workload=Looking())


def test_nothing_is_trained_and_the_run_survives_json() -> None:
    before = torch.get_rng_state()
    run = memlab.predict(Plan(model="mlp", steps=5, device="cpu"))

    assert (run.source, run.losses, run.fits, len(run.step_peaks)) == ("predicted", (), True, 5)
    assert Run.from_json(run.to_json()) == run
    assert torch.equal(torch.get_rng_state(), before)


def test_a_prediction_is_remembered() -> None:
    plan = Plan(model="mlp", seed=77, device="cpu")

    assert memlab.predict(plan) is memlab.predict(Plan(model="mlp", seed=77, device="cpu"))


def test_two_predictions_of_one_plan_are_equal_where_parts_of_the_plan_do_not_matter() -> None:
    slow, fast = (
        memlab.predict(Plan(model="mlp", learning_rate=rate, device="cpu")) for rate in (1e-4, 1e-2)
    )

    assert slow.trace == fast.trace
    assert np.all(slow.trace.totals >= 0)
