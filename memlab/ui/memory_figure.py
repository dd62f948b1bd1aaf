"""Memory during one optimizer step, as data: stacked categories, phases, the named peak."""

import numpy as np

from memlab.events import StepMemory
from memlab.trace import CATEGORIES
from memlab.ui.palette import CATEGORY_COLOURS, NEUTRAL, category_label
from memlab.ui.scale import Scale, scale_for
from memlab.ui.spec import Figure, Mark, Series, Span, Table
from memlab.units import format_bytes

HEADROOM = 1.24
"""Room above the peak for its name."""
NARROWEST_LABEL = 0.033
"""Share of the axis that a phase needs to carry its name."""
LETTERS = {"forward": "F", "backward": "B", "optimizer": "step", "setup": ""}


def memory_figure(memory: StepMemory | None, steps: int = 0) -> Figure:
    """Return the figure of one optimizer step out of `steps`; empty before the first."""
    title, x_label = "Memory during one optimizer step", "progress through the step (changes of memory)"
    if memory is None:
        return Figure(title=title, note="press Run", x_label=x_label, y_label="MiB", table=_table(None))
    position = np.asarray(memory.position, float)
    peak = memory.peak["total"]
    scale = scale_for(max(peak, _limits(memory)))
    top = max(peak, _limits(memory)) / scale.unit
    return Figure(
        title=title,
        note=f"step {memory.step + 1}{f' of {steps}' if steps else ''}, live bytes by category; {_phase_words(memory)}",
        x_label=x_label,
        y_label=scale.name,
        series=(*_areas(memory, position, scale), *_lines(memory, position, scale)),
        spans=_spans(memory),
        mark=Mark(text=_peak_words(memory), x=memory.peak_position, y=peak / scale.unit),
        x_range=(float(position[0]), float(position[-1])) if len(position) else None,
        y_range=(0.0, top * HEADROOM),
        table=_table(memory),
    )


def _limits(memory: StepMemory) -> int:
    return max(memory.allocated, memory.reserved)


def _areas(memory: StepMemory, position: np.ndarray, scale: Scale) -> list[Series]:
    sizes = {
        name: np.asarray(values, float) for name, values in zip(CATEGORIES, memory.by_category, strict=True)
    }
    return [
        Series(name=category_label(name), x=position, y=sizes[name] / scale.unit, colour=colour, kind="area")
        for name, colour in CATEGORY_COLOURS.items()
        if sizes[name].any()
    ]


def _lines(memory: StepMemory, position: np.ndarray, scale: Scale) -> list[Series]:
    """Return the allocator's lines; none where it keeps no cache and rounds nothing, as on the CPU."""
    if memory.allocated == memory.reserved == memory.peak["total"] or not len(position):
        return []
    ends = position[[0, -1]]
    return [
        Series(
            name=f"{name} {format_bytes(size)}",
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


def _table(memory: StepMemory | None) -> Table:
    header = ("category", "at the peak", "share", "largest in the step")
    if memory is None:
        return Table(caption="Memory by category", header=header, rows=())
    total = memory.peak["total"] or 1
    rows = [
        (
            category_label(name),
            format_bytes(memory.peak[name]),
            f"{memory.peak[name] / total:.0%}",
            format_bytes(max(values, default=0)),
        )
        for name, values in zip(CATEGORIES, memory.by_category, strict=True)
        if any(values) or memory.peak[name]
    ]
    rows.append(("all", format_bytes(memory.peak["total"]), "100%", format_bytes(memory.peak["total"])))
    if _lines(memory, np.asarray(memory.position, float), scale_for(total)):
        rows.append(("peak allocated", format_bytes(memory.allocated), "", ""))
        rows.append(("reserved", format_bytes(memory.reserved), "", ""))
    return Table(
        caption=f"Memory by category, {_peak_words(memory)} of step {memory.step + 1}",
        header=header,
        rows=tuple(rows),
    )
