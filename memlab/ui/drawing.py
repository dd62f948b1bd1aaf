"""From records to cards: which figure goes where, and which is worth drawing now."""

from memlab.ui.ledger import Ledger
from memlab.ui.memory_figure import memory_figure
from memlab.ui.panel import Panel
from memlab.ui.run_figures import loss_figure, loss_scale_figure, run_peaks_figure, step_peaks_figure


def draw(panel: Panel, ledger: Ledger, *, in_full: bool) -> None:
    """Draw the cards that are due; all of them with `in_full`."""
    newest, drawn = ledger.newest, ledger.drawn
    memory, steps = (newest.memory, newest.plan.steps) if newest is not None else (None, 0)
    figures = (
        (panel.memory, lambda: memory_figure(memory, steps)),
        (panel.loss, lambda: loss_figure(drawn)),
        (panel.peaks, lambda: run_peaks_figure(ledger.shown)),
        (panel.step_peaks, lambda: step_peaks_figure(drawn)),
        (panel.loss_scale, lambda: loss_scale_figure(drawn)),
    )
    if newest is not None and memory is None and panel.memory.figure.series:
        figures = figures[1:]  # the last good figure stays until the new run has its own
    panel.show_loss_scale(any(record.loss_scales for record in drawn))
    for card, figure in figures:
        if in_full or card.due():
            card.draw(figure(), settled=in_full)
