"""A predicted Run as a table for the terminal."""

from collections.abc import Mapping

from memlab.cli.report import batch_sentence, memory_table, row
from memlab.logits import logits_memory
from memlab.memory.beyond import beyond_allocator
from memlab.memory.cards import Card, card
from memlab.run import Run
from memlab.units import format_bytes


def prediction_report(run: Run) -> str:
    """Return what `run` would take, whether it fits its card, and what is not in these figures."""
    plan = run.plan
    name = run.environment["device"]
    rows = [
        ("plan", f"{plan.model} on {plan.data}, {plan.precision}, {plan.optimizer}"),
        ("global batch", batch_sentence(run)),
        ("device", f"{name} ({run.environment['device_name']})"),
    ]
    lines = [*map(row, rows), "", *memory_table(run), *_of_the_loss(run)]
    if name.startswith("card:"):
        lines += ["", *_on_the_card(run, card(name.removeprefix("card:")))]
    assumed = [(subject, run.environment[subject]) for subject in ASSUMED if subject in run.environment]
    lines += [row((f"assumed of the {subject.replace('_', ' ')}", text)) for subject, text in assumed]
    return "\n".join([*lines, *(f"note: {notice}" for notice in run.notices)])


ASSUMED = ("batches", "loss_scale", "ranks")
"""What a prediction may take for granted."""


def _of_the_loss(run: Run) -> list[str]:
    """Return the lines of what the logits take, for a model of text, whose vocabulary makes them large."""
    found = logits_memory(run)
    if found is None or run.plan.sequence_length is None:
        return []
    chunks = f"; in {run.plan.loss_chunks} chunks" if run.plan.loss_chunks > 1 else ""
    return [
        "",
        row(("of that the loss's own", f"(logits, their FP32 copies, their gradient{chunks})")),
        *(
            row(
                (
                    f"  {name.replace('_', ' ')}",
                    f"{_size(sizes)}  = {_sum(sizes)}" if any(sizes.values()) else "none",
                )
            )
            for name, sizes in vars(found).items()
        ),
    ]


def _size(sizes: Mapping[str, int]) -> str:
    total = sum(sizes.values())
    return f"{format_bytes(total):>12}  {total:>18,} B"


def _sum(sizes: Mapping[str, int]) -> str:
    return " + ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items() if size)


def _on_the_card(run: Run, target: Card) -> list[str]:
    beyond = beyond_allocator(target)
    left = target.memory_bytes - beyond["cuda_context_low"]
    headroom = left - run.peak_reserved
    fits = (
        f"yes, {format_bytes(headroom)} of headroom"
        if run.fits
        else f"no, {format_bytes(-headroom)} too much"
    )
    low, high = (format_bytes(beyond[f"cuda_context_{end}"]) for end in ("low", "high"))
    rows = [
        ("memory of the card", format_bytes(target.memory_bytes)),
        (f"fits the {format_bytes(left)} left", fits),
        ("on top, not in these figures:", ""),
        ("  CUDA context", f"{low} (taken off above) to {high}"),
        ("  cuBLAS workspace", format_bytes(beyond["cublas_workspace"])),
        *(
            [("  NCCL", f"{format_bytes(beyond['nccl_buffer'])} for each channel and peer")]
            if run.plan.world_size > 1
            else []
        ),
        ("left out", run.environment["leaves_out"]),
    ]
    return [row(pair) for pair in rows]
