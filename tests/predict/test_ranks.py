"""Several ranks without a second process: what one of them holds."""

from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist

import memlab
from memlab import Plan, PlanError
from memlab.models import build_model
from memlab.predicting.steps import steps_to_trace
from memlab.predicting.trial import trial
from memlab.workload import workload_for

WAYS = ("ddp", "zero1", "fsdp2")
DEEP = {"model": "gpt2", "micro_batch_size": 1, "sequence_length": 8, "steps": 3, "world_size": 4}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"gradient_as_bucket_view": True},
        {"gradient_as_bucket_view": True, "zero_grad": "in_place", "gradient_accumulation_steps": 3},
        {"find_unused_parameters": True},
        {"data_parallel": "fsdp2", "gradient_accumulation_steps": 2},
    ],
    ids=str,
)
def test_a_rank_by_a_few_blocks_is_that_by_all(fields: dict[str, object]) -> None:
    plan = Plan(**DEEP, **fields)
    workload = workload_for(plan)
    steps = steps_to_trace(plan, workload).traced

    by_blocks, every = (trial(plan, workload, steps, (8, 0), in_full=whole) for whole in (False, True))

    assert by_blocks.by_blocks and not every.by_blocks
    assert by_blocks.trace.held == every.trace.held
    for name in ("delta_bytes", "allocation", "category", "phase", "micro_step", "step"):
        assert np.array_equal(getattr(by_blocks.trace, name), getattr(every.trace, name)), name


def test_ranks_differ_from_one_alone_by_their_buckets_only() -> None:
    plan = Plan(model="gpt-tiny", micro_batch_size=2, sequence_length=16, world_size=8, device="cpu")
    rank, alone = memlab.predict(plan).peak, memlab.predict(plan.of_one_rank).peak

    assert {name: rank[name] - alone[name] for name in rank if rank[name] != alone[name]} == {
        "communication_buffers": alone["gradients"]
    }


def test_zero1_shares_out_the_optimizers_state_in_whole_weights() -> None:
    fields = {
        "model": "gpt-tiny",
        "micro_batch_size": 1,
        "sequence_length": 8,
        "optimizer": "sgd",
        "momentum": 0.9,
    }
    whole = memlab.predict(Plan(**fields)).peak["optimizer_state"]
    largest = max(4 * weight.numel() for weight in build_model(Plan(**fields)).parameters())

    for ranks in (2, 4, 8):
        plan = Plan(**fields, data_parallel="zero1", world_size=ranks)
        share = memlab.predict(plan).peak["optimizer_state"]
        assert whole / ranks <= share <= whole / ranks + largest, f"{ranks=}: {share=:,}"


def test_a_prediction_says_which_rank_it_is_of_and_what_it_leaves_out() -> None:
    fields = {"model": "mlp", "world_size": 2}

    said = [memlab.predict(Plan(**fields, data_parallel=way)).environment["ranks"] for way in WAYS]

    assert said == [
        "each as the first one, with DDP's buckets; NCCL's own buffers are left out",
        "each as the one with the largest share of the optimizer's state, with DDP's buckets; NCCL's own buffers "
        "are left out",
        "each as the first one, with the weights that FSDP2 gathers; NCCL's own buffers are left out",
    ]


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_fsdp2_divides_weights_gradients_and_state_by_rows(ranks: int) -> None:
    fields = {
        "model": "gpt-tiny",
        "micro_batch_size": 1,
        "sequence_length": 8,
        "optimizer": "sgd",
        "momentum": 0.9,
    }
    weights = build_model(Plan(**fields)).parameters()
    rows = [(-(-weight.shape[0] // ranks), weight[0].numel()) for weight in weights]
    share = sum(4 * count * width for count, width in rows)

    run = memlab.predict(Plan(**fields, data_parallel="fsdp2", world_size=ranks, device="cpu"))

    held = run.trace.at(len(run.trace) - 1)
    assert (held["parameters"], held["optimizer_state"]) == (share, share)
    assert run.peaks_by_phase["optimizer"]["gradients"] <= share


def test_fsdp2_is_refused_where_ranks_have_joined(tmp_path: Path) -> None:
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        with pytest.raises(PlanError) as refusal:
            memlab.predict(Plan(model="mlp", data_parallel="fsdp2", world_size=2, seed=5, device="cpu"))
    finally:
        dist.destroy_process_group()

    assert str(refusal.value) == (
        "data_parallel='fsdp2' is predicted in a process that has joined no others, and this one has: predict "
        "before torch.distributed.init_process_group, or in a process of its own."
    )
