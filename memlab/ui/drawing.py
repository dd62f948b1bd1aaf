"""From records to cards: which figure goes where, and which is worth drawing now."""

from memlab.ui.foresight import Foresight
from memlab.ui.ledger import Ledger
from memlab.ui.memory_figure import memory_figure
from memlab.ui.panel import Panel
from memlab.ui.records import Record
from memlab.ui.run_figures import loss_figure, loss_scale_figure, run_peaks_figure, step_peaks_figure
from memlab.ui.spec import Figure


def draw(panel: Panel, ledger: Ledger, foresight: Foresight, *, in_full: bool) -> bool:
    """Draw the cards that are due, all of them with `in_full`; tell whether any is behind what is known."""
    newest, drawn = ledger.newest, ledger.drawn
    figures = (
        (panel.memory, lambda: step_figure(ledger, foresight)),
        (panel.loss, lambda: loss_figure(drawn)),
        (panel.peaks, lambda: run_peaks_figure(ledger.shown)),
        (panel.step_peaks, lambda: step_peaks_figure(drawn)),
        (panel.loss_scale, lambda: loss_scale_figure(drawn)),
    )
    if newest is not None and newest.memory is None and panel.memory.figure.series:
        figures = figures[1:]  # the last good figure stays until the new run has its own
    behind = newest is not None and newest.ranks is not None and not (in_full or panel.ranks.lanes.due())
    panel.ranks.draw(newest.ranks if newest is not None else None, in_full=in_full)
    panel.show_loss_scale(any(record.loss_scales for record in drawn))
    for card, figure in figures:
        if in_full or card.due():
            card.draw(figure(), settled=in_full)
            behind = behind or card.table_waits
        else:
            behind = True
    return behind


def step_figure(ledger: Ledger, foresight: Foresight) -> Figure:
    """Return the newest run's last step with the ghost over it; the ghost alone where models differ."""
    newest = ledger.newest
    memory = newest.memory if newest is not None else None
    if memory is not None and _another_model(newest, foresight):
        newest, memory = None, None
    ghost = foresight.ghost(newest, memory)
    return memory_figure(memory, newest.plan.steps if newest is not None else 0, ghost)


def _another_model(newest: Record, foresight: Foresight) -> bool:
    ended = newest.run is not None
    return ended and foresight.shown is not None and foresight.shown[0].plan.model != newest.plan.model
