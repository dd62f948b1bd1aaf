"""What must hold on a CUDA device; `make gpu-check` runs these with plain pytest."""

import math

import pytest

import memlab
from memlab.trace import CATEGORIES

pytestmark = pytest.mark.gpu

BLOCK_BYTES = 512
"""The CUDA allocator rounds every request up to a multiple of this."""


def run(**fields: object) -> memlab.Run:
    return memlab.measure(memlab.Plan(**{"model": "gpt-tiny", "steps": 3, "micro_batch_size": 4, **fields}))


def test_auto_finds_the_gpu() -> None:
    import torch

    environment = run().environment
    assert (
        environment["device"].startswith("cuda")
        and environment["device_name"] == torch.cuda.get_device_name()
    )


def test_requested_bytes_are_at_most_the_allocators_and_these_at_most_the_reserved() -> None:
    found = run()

    assert 0 < found.peak.total <= found.peak_allocated <= found.peak_reserved
    assert found.peak_allocated % BLOCK_BYTES == 0 and found.fits


def test_categories_sum_to_the_total_at_every_change() -> None:
    trace = run().trace

    assert trace.by_category.shape[1] == len(CATEGORIES)
    assert (trace.by_category.sum(axis=1) == trace.totals).all()
    assert (trace.by_category >= 0).all()


def test_weights_cost_the_same_on_both_devices() -> None:
    for category in ("parameters", "buffers"):
        assert run().peak[category] == run(device="cpu").peak[category]


def test_the_peak_is_equal_for_two_and_eight_micro_steps() -> None:
    two, eight = (run(gradient_accumulation_steps=steps).peak.total for steps in (2, 8))

    assert two == eight, f"{two:,} != {eight:,}"


def test_accumulation_costs_at_most_one_gradient() -> None:
    whole, split = run(), run(gradient_accumulation_steps=2)

    gradients = whole.peak["parameters"]  # as many, in the same precision
    assert 0 <= split.peak.total - whole.peak.total <= gradients


@pytest.mark.parametrize("policy", ["full", "selective", "every-2"])
def test_checkpointing_shrinks_activations_and_keeps_the_loss(policy: str) -> None:
    plain, saved = run(micro_batch_size=16), run(micro_batch_size=16, activation_checkpointing=policy)

    assert saved.peak.total < plain.peak.total
    # Attention's backward kernel adds in no fixed order.
    assert saved.losses == pytest.approx(plain.losses, rel=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "fp16-mixed", "bf16-true"])
def test_every_precision_learns_as_the_cpu_does(precision: str) -> None:
    here, there = run(precision=precision), run(precision=precision, device="cpu")

    # Sums in another order, and TF32 or 16-bit products: 7 to 11 bits of mantissa.
    assert here.losses == pytest.approx(there.losses, rel=0.02)
    assert all(math.isfinite(loss) for loss in here.losses)


def test_accumulated_and_whole_batches_give_one_loss() -> None:
    whole, split = run(micro_batch_size=8), run(micro_batch_size=2, gradient_accumulation_steps=4)

    # The same samples summed in another order.
    assert split.losses == pytest.approx(whole.losses, rel=1e-3)


def test_foreach_costs_about_one_more_copy_of_the_weights() -> None:
    one_by_one, at_once = run(foreach=False), run(foreach=True)

    def optimizer_peak(found: memlab.Run) -> int:
        return found.peaks_by_phase["optimizer"].total

    assert optimizer_peak(at_once) > optimizer_peak(one_by_one)


def test_a_run_leaves_nothing_behind() -> None:
    import torch

    run()
    before = torch.cuda.memory_allocated()
    run()

    assert torch.cuda.memory_allocated() == before


def test_an_overflow_halves_the_scale_and_is_reported() -> None:
    found = run(precision="fp16-mixed", initial_loss_scale=2.0**40, steps=4)

    assert 0 in found.skipped_steps
