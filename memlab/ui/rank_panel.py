"""What the bench shows of several ranks; hidden where a run has one."""

from ipywidgets import HTML, HBox, VBox

from memlab.ui.card import Card
from memlab.ui.charts import Backend
from memlab.ui.html import text_html
from memlab.ui.rank_exchanges import exchanges_figure, weights_words
from memlab.ui.rank_figures import lanes_figure, rank_memory_figure
from memlab.ui.rank_record import RankRecord


class RankPanel:
    """Three cards: a lane for each rank, the memory of each, and what they exchanged."""

    def __init__(self, backend: Backend) -> None:
        self.weights = HTML()
        self.lanes = Card("lanes", lanes_figure(None), backend, height=190)
        self.memory = Card("rank-memory", rank_memory_figure(None), backend, height=186)
        self.exchanges = Card("exchanges", exchanges_figure(None), backend, height=186, beside=self.weights)
        self.cards = (self.lanes, self.memory, self.exchanges)
        row = HBox([self.memory.widget, self.exchanges.widget])
        row.add_class("memlab-row")
        self.widget = VBox([self.lanes.widget, row])
        self.widget.add_class("memlab-ranks")
        self.show(False)

    def show(self, shown: bool) -> None:
        """Show or hide all of it."""
        display = "" if shown else "none"
        if self.widget.layout.display != display:
            self.widget.layout.display = display

    def draw(self, record: RankRecord | None, *, in_full: bool) -> None:
        """Draw the cards that are due; all of them with `in_full`. None: the run has one rank."""
        self.show(record is not None)
        if record is None or not (in_full or self.lanes.due()):
            return
        self.lanes.draw(lanes_figure(record), settled=in_full)
        self.memory.draw(rank_memory_figure(record), settled=in_full)
        self.exchanges.draw(exchanges_figure(record), settled=in_full)
        said = text_html("memlab-weights", weights_words(record)) if record.last_step else ""
        if self.weights.value != said:
            self.weights.value = said
