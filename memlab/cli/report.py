"""A Run as a table for the terminal."""

from collections.abc import Mapping

from memlab.plan import DataParallel
from memlab.run import Rank, Run
from memlab.units import format_bytes


def report(run: Run) -> str:
    """Return what `run` took: memory by category, where the peak came, losses and speed."""
    plan = run.plan
    rows = [
        ("plan", f"{plan.model} on {plan.data}, {plan.precision}, {plan.optimizer}"),
        ("global batch", batch_sentence(run)),
        ("device", f"{run.environment['device']} ({run.environment['device_name']})"),
        ("loss, first and last step", losses(run)),
        ("samples per second", f"{run.samples_per_second:,.1f}"),
        *(
            [("skipped steps", ", ".join(str(step + 1) for step in run.skipped_steps))]
            if run.skipped_steps
            else []
        ),
    ]
    return "\n".join([*map(row, rows), "", *memory_table(run), *ranks_table(run)])


def batch_sentence(run: Run) -> str:
    """Say the global batch as a product."""
    plan = run.plan
    ranks = f" x {plan.world_size} ranks" if plan.world_size > 1 else ""
    return (
        f"{plan.global_batch_size} = micro-batch {plan.micro_batch_size} "
        f"x K {plan.gradient_accumulation_steps}{ranks}"
    )


def losses(run: Run) -> str:
    """Return the first and the last loss."""
    if not run.losses:
        return "none"
    return f"{run.losses[0]:.4f}, {run.losses[-1]:.4f}"


def memory_table(run: Run) -> list[str]:
    """Return the lines of the peak by category, and the allocator's figures."""
    categories = [
        (
            f"  {name.replace('_', ' ')}",
            f"{format_bytes(size):>12}  {size:>18,} B  {size / run.peak.total:>4.0%}",
        )
        for name, size in run.peak.items()
        if size
    ]
    totals = {
        f"peak of live tensors ({run.source})": run.peak.total,
        "allocator's peak": run.peak_allocated,
        "allocator's reserve, peak": run.peak_reserved,
        **{f"device, {name.replace('_', ' ')}": size for name, size in run.device_bytes.items()},
    }
    rows = [(name, f"{format_bytes(size):>12}  {size:>18,} B") for name, size in totals.items()]
    return [*map(row, categories), *map(row, rows), row(("the peak came in", run.peak_place))]


def ranks_table(run: Run) -> list[str]:
    """Return one line for each of several ranks: its peak, and the gradients that it exchanged."""
    if len(run.ranks) < 2:
        return []
    steps = max(1, len(run.losses))
    lines = []
    for rank in run.ranks:
        exchanged = _exchanged(rank, run.plan.data_parallel, steps)
        name = f"rank {rank.rank}, peak of live tensors"
        lines.append((name, f"{format_bytes(rank.peak.total):>12}  {exchanged}"))
    return ["", *map(row, lines)]


def _exchanged(rank: Rank, division: DataParallel, steps: int) -> str:
    """Return what `rank` counted, as the mean of `steps` steps."""
    counts = rank.communication
    milliseconds = counts.get("microseconds", 0) / steps / 1000
    if division != "fsdp2":
        said = _of_a_step(counts, "gradient", "exchanges", "all-reduce", steps)
        return f"{said} of gradients a step, in {milliseconds:.1f} ms"
    if not counts.get("weight_gathers"):  # saved by a version that did not count them
        return "exchanges were not counted"
    scattered = _of_a_step(counts, "gradient", "exchanges", "reduce-scatter", steps)
    gathered = _of_a_step(counts, "weight", "gathers", "all-gather", steps)
    return f"{scattered} of gradients and {gathered} of weights a step, in {milliseconds:.1f} ms"


def _of_a_step(counts: Mapping[str, int], what: str, how: str, name: str, steps: int) -> str:
    calls = counts.get(f"{what}_{how}", 0) / steps
    size = format_bytes(counts.get(f"{what}_bytes", 0) // steps)
    return f"{calls:g} {name}{'' if calls == 1 else 's'} ({size})"


def row(pair: tuple[str, str]) -> str:
    """Return a name and its value as one line."""
    return f"{pair[0]:<34}{pair[1]}".rstrip()
