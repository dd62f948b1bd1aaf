"""The planner's proposals as a table for the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memlab.plan import DataParallel, Plan
from memlab.units import format_bytes

if TYPE_CHECKING:
    from memlab.planner import Proposal

SHOWN = 24
"""Rows of the table; the JSON holds all proposals."""
HEADINGS = ("rank", "speed", "micro", "K", "precision", "checkpointing", "optimizer", "needs", "headroom")
WIDTHS = (4, 7, 7, 5, 12, 15, 17, 11, 11)


def plan_report(proposals: Sequence["Proposal"]) -> str:
    """Return the proposals as a table, with what its figures mean and leave out."""
    first = proposals[0]
    ranks = f" on each of {first.plan.world_size} ranks" if first.plan.world_size > 1 else ""
    lines = [
        f"{len(proposals)} plan{' fits' if len(proposals) == 1 else 's fit'} the {format_bytes(first.available_bytes)} left of {first.card}{ranks} (predicted), "
        f"{first.plan.model} with {first.plan.global_batch_size} samples an optimizer step:",
        _line(HEADINGS),
        *(_line(_cells(rank, it)) for rank, it in enumerate(proposals[:SHOWN], 1)),
    ]
    if len(proposals) > SHOWN:
        lines.append(f"... and {len(proposals) - SHOWN} slower ones; --json writes all.")
    return "\n".join([*lines, "", *_notes(proposals)])


def _line(cells: Sequence[str]) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))


def _cells(rank: int, proposal: "Proposal") -> tuple[str, ...]:
    plan = proposal.plan
    return (
        str(rank),
        f"{proposal.relative_speed:.2f}",
        str(plan.micro_batch_size),
        str(plan.gradient_accumulation_steps),
        plan.precision,
        plan.activation_checkpointing,
        f"{update_name(plan)} {plan.optimizer}",
        format_bytes(proposal.peak_reserved),
        format_bytes(proposal.headroom_bytes),
    )


def update_name(plan: Plan) -> str:
    """Say how the optimizer updates: in one kernel, all weights at once, or one weight after the other."""
    if plan.fused:
        return "fused"
    return "for-loop" if plan.foreach is False else "foreach"


_RANKS: dict[DataParallel, str] = {
    "ddp": "Each rank holds DDP's buckets too: they are in it.",
    "zero1": "It is what the rank with the largest share of the optimizer's state needs, with DDP's buckets.",
    "fsdp2": "It is what a rank needs with its shares and with the weights that FSDP2 gathers.",
}


def _notes(proposals: Sequence["Proposal"]) -> list[str]:
    notes = [
        "speed: samples per second against rank 1, by a roofline of each operation at the card's published rates; "
        "it ranks plans and is no timing (docs/planner.md).",
        "needs: the allocator's peak reserve. Left out: CUDA context beyond its smallest, workspaces of cuBLAS and cuDNN.",
    ]
    if proposals[0].plan.world_size > 1:
        notes.append(f"{_RANKS[proposals[0].plan.data_parallel]} NCCL's own buffers are left out.")
    if any(it.plan.precision == "bf16-true" and not it.plan.master_weights for it in proposals):
        notes.append(
            "bf16-true keeps no FP32 weights: an update below 1/512 of a weight is lost; other precisions keep them."
        )
    return notes
