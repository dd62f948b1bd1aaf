"""The meter against what torch itself records: torch.profiler's allocator events, and MemTracker."""

import pytest
import torch
from programs import allocator_peak, live_bytes, n_model, plan_step, sgd
from torch.distributed._tools.mem_tracker import MemTracker

from memlab import Meter, Plan

# Numbers handed to operators become 0-dim tensors inside them (8 B each, a few at a time): no
# operation shows them. They matter to the byte only where the optimizer's arithmetic is the peak.
SCALARS = 32


@pytest.mark.parametrize("precision", ["fp32", "fp16-mixed"])
@pytest.mark.parametrize("model, batch", [("gpt-tiny", 4), ("mlp", 512)])
def test_the_total_equals_the_allocator_s_record_to_the_byte(model, batch, precision) -> None:
    plan = Plan(model=model, precision=precision, micro_batch_size=batch)
    network, optimizer, step = plan_step(plan)
    step()  # from now on the optimizer's state is there
    with Meter(network, optimizer) as meter:
        step()
    before = live_bytes(network, optimizer)

    recorded = before + allocator_peak(step)

    # The batch was there before both records began; the meter counts it from its first use.
    counted = meter.peak.total - meter.peak["inputs"]
    assert meter.peak.phase != "optimizer"
    assert counted == recorded, f"{counted:,} counted, {recorded:,} recorded"


def test_where_the_optimizer_is_the_peak_only_scalars_inside_operators_are_missed() -> None:
    network, optimizer, step = plan_step(Plan(model="mlp", micro_batch_size=4))
    step()
    with Meter(network, optimizer) as meter:
        step()
    recorded = live_bytes(network, optimizer) + allocator_peak(step)
    counted = meter.peak.total - meter.peak["inputs"]
    assert meter.peak.phase == "optimizer"
    assert 0 <= recorded - counted <= SCALARS, f"{counted:,} counted, {recorded:,} recorded"


def test_scratch_memory_inside_convolutions_is_missed_and_bounded() -> None:
    """oneDNN reorders weights and inputs inside its kernels: memory that no operation returns."""
    network, optimizer, step = plan_step(Plan(model="convnet", micro_batch_size=32))
    step()
    with Meter(network, optimizer) as meter:
        step()
    recorded = live_bytes(network, optimizer) + allocator_peak(step)
    counted = meter.peak.total - meter.peak["inputs"]
    assert counted <= recorded <= 1.15 * counted, f"{counted:,} counted, {recorded:,} recorded"


@pytest.mark.filterwarnings("ignore")  # MemTracker's own
@pytest.mark.parametrize("make_optimizer", [sgd, lambda p: torch.optim.AdamW(p, foreach=False)])
def test_one_micro_batch_agrees_with_memtracker(make_optimizer) -> None:
    def program():
        torch.manual_seed(0)
        model = n_model(6, 256)
        optimizer = make_optimizer(model.parameters())
        x = torch.randn(512, 256)

        def step():
            model(x).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        step()
        return model, optimizer, x, step

    model, optimizer, x, step = program()
    with Meter(model, optimizer) as meter:
        step()
    model, optimizer, x, step = program()
    tracker = MemTracker()
    tracker.track_external(model, optimizer, x)
    with tracker:
        step()
    theirs = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]

    assert meter.peak.total == theirs, f"{meter.peak.total:,} metered, {theirs:,} by MemTracker"
