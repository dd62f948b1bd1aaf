"""Memory during one optimizer step, as data: stacked categories, phases, the named peak."""

import numpy as np

from memlab.events import StepMemory
from memlab.trace import CATEGORIES
from memlab.ui.ghost import Ghost
from memlab.ui.palette import CATEGORY_COLOURS, NEUTRAL, category_label
from memlab.ui.scale import Scale, scale_for
from memlab.ui.spec import Figure, Mark, Series, Span, Table
from memlab.units import format_bytes

HEADROOM = 1.24
"""Room above the peak for its name."""
NARROWEST_LABEL = 0.033
"""Share of the axis that a phase needs to carry its name."""
TITLE, X_LABEL = "Memory during one optimizer step", "progress through the step (changes of memory)"
LETTERS = {"forward": "F", "backward": "B", "optimizer": "step", "setup": ""}


def memory_figure(memory: StepMemory | None, steps: int = 0, ghost: Ghost | None = None) -> Figure:
    """Return the figure of one optimizer step out of `steps`, with a prediction laid over it.

    Before the first step the prediction is drawn by category, pale; empty where there is none either.
    """
    if memory is None and ghost is None:
        return Figure(title=TITLE, note="press Run", x_label=X_LABEL, y_label="MiB", table=_table(None, None))
    drawn = memory if memory is not None else ghost.memory
    position = np.asarray(drawn.position, float)
    x_range = (float(position[0]), float(position[-1])) if len(position) else (0.0, 1.0)
    peak = drawn.peak["total"]
    largest = max(peak, _limits(drawn), ghost.peak if ghost else 0)
    scale = scale_for(largest)
    budget = ghost.budget(largest, x_range, scale) if ghost else []
    return Figure(
        title=TITLE,
        note=_note(memory, steps, ghost),
        x_label=X_LABEL,
        y_label=scale.name,
        series=(
            *_areas(drawn, position, scale, faded=memory is None),
            *_lines(drawn, position, scale, foretold=memory is None),
            *([ghost.line(memory, scale)] if ghost else []),
            *budget,
        ),
        spans=_spans(drawn),
        mark=Mark(
            text=f"{'predicted ' if memory is None else ''}{_peak_words(drawn)}",
            x=drawn.peak_position,
            y=peak / scale.unit,
        ),
        x_range=x_range if len(position) else None,
        y_range=(0.0, max(largest / scale.unit, *(line.y[0] for line in budget), 0.0) * HEADROOM),
        table=_table(memory, ghost),
    )


def _note(memory: StepMemory | None, steps: int, ghost: Ghost | None) -> str:
    if memory is None:
        missing = "no whole step measured" if ghost.of_this_run else "not run yet"
        return f"predicted for {ghost.name}, {missing}; {_phase_words(ghost.memory)}"
    step = f"step {memory.step + 1}{f' of {steps}' if steps else ''}"
    return f"{step}, live bytes by category; {_phase_words(memory)}"


def _limits(memory: StepMemory) -> int:
    return max(memory.allocated, memory.reserved)


def _areas(memory: StepMemory, position: np.ndarray, scale: Scale, *, faded: bool) -> list[Series]:
    sizes = {
        name: np.asarray(values, float) for name, values in zip(CATEGORIES, memory.by_category, strict=True)
    }
    return [
        Series(
            name=category_label(name),
            x=position,
            y=sizes[name] / scale.unit,
            colour=colour,
            kind="area",
            faded=faded,
        )
        for name, colour in CATEGORY_COLOURS.items()
        if sizes[name].any()
    ]


def _lines(memory: StepMemory, position: np.ndarray, scale: Scale, *, foretold: bool = False) -> list[Series]:
    """Return the allocator's lines; none where it keeps no cache and rounds nothing, as on the CPU."""
    if memory.allocated == memory.reserved == memory.peak["total"] or not len(position):
        return []
    ends = position[[0, -1]]
    return [
        Series(
            name=f"{'predicted ' if foretold else ''}{name} {format_bytes(size)}",
            x=ends,
            y=np.full(2, size / scale.unit),
            colour=NEUTRAL,
            dash=dash,
        )
        for name, size, dash in (
            ("peak allocated", memory.allocated, "dash"),
            ("reserved", memory.reserved, "dot"),
        )
    ]


def _spans(memory: StepMemory) -> tuple[Span, ...]:
    length, crowded = _length(memory), _crowded(memory)
    return tuple(
        Span(
            label=_label(phase, micro_step)
            if last - first >= NARROWEST_LABEL * length and not (crowded and phase != "optimizer")
            else "",
            first=first,
            last=last,
            shaded=phase != "forward",
        )
        for phase, micro_step, first, last in memory.spans
    )


def _length(memory: StepMemory) -> float:
    return max((last for *_, last in memory.spans), default=0.0) or 1.0


def _crowded(memory: StepMemory) -> bool:
    widths = [last - first for phase, _, first, last in memory.spans if phase in ("forward", "backward")]
    return bool(widths) and min(widths) < NARROWEST_LABEL * _length(memory)


def _label(phase: str, micro_step: int) -> str:
    return LETTERS[phase] + (str(micro_step + 1) if phase in ("forward", "backward") else "")


def _phase_words(memory: StepMemory) -> str:
    micro_steps = 1 + max((micro_step for _, micro_step, *_ in memory.spans), default=0)
    if _crowded(memory):
        return f"{micro_steps} micro-steps: white forward, shaded backward"
    return "F = forward, B = backward of each micro-step"


def _peak_words(memory: StepMemory) -> str:
    phase, number = memory.peak["phase"], memory.peak["micro_step"] + 1
    place = {"forward": f"forward {number}", "backward": f"backward {number}", "optimizer": "optimizer step"}
    return f"peak {format_bytes(memory.peak['total'])}: {place.get(phase, phase)}"


def _table(memory: StepMemory | None, ghost: Ghost | None) -> Table:
    drawn = memory if memory is not None else ghost.memory if ghost is not None else None
    header = ("category", "at the peak", "share", "largest in the step")
    if drawn is None:
        return Table(caption="Memory by category", header=header, rows=())
    beside = ghost if memory is not None else None
    rows = [_row(name, drawn, max(values, default=0), beside) for name, values in _present(drawn)]
    rows.append(_row("total", drawn, drawn.peak["total"], beside))
    if _lines(drawn, np.asarray(drawn.position, float), scale_for(drawn.peak["total"])):
        more = ("",) * (3 if beside else 2)
        rows.append(("peak allocated", format_bytes(drawn.allocated), *more))
        rows.append(("reserved", format_bytes(drawn.reserved), *more))
    step = f"step {drawn.step + 1}"
    made = f"{_peak_words(drawn)} of {step}" if memory is not None else f"predicted for {ghost.name}"
    over = f"; {beside.words(memory)}" if beside else ""
    return Table(
        caption=f"Memory by category, {made}{over}",
        header=(*header, "predicted at its peak") if beside else header,
        rows=tuple(rows),
    )


def _present(memory: StepMemory) -> list[tuple[str, tuple[int, ...]]]:
    pairs = zip(CATEGORIES, memory.by_category, strict=True)
    return [(name, values) for name, values in pairs if any(values) or memory.peak[name]]


def _row(name: str, memory: StepMemory, largest: int, ghost: Ghost | None) -> tuple[str, ...]:
    size, total = memory.peak[name], memory.peak["total"] or 1
    row = (
        "all" if name == "total" else category_label(name),
        format_bytes(size),
        f"{size / total:.0%}",
        format_bytes(largest),
    )
    return (*row, format_bytes(ghost.memory.peak[name])) if ghost is not None else row
