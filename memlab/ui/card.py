"""A card: one chart with its head, its legend and its twin as a table."""

import time

from ipywidgets import HTML, HBox, ToggleButton, VBox, Widget

from memlab.ui.charts import Backend, chart
from memlab.ui.fields import name_class
from memlab.ui.html import legend_html, table_html, title_html
from memlab.ui.spec import Figure

TABLE_SECONDS = 1.0
"""Between two writings of an open table: a reader needs time."""


class Card:
    """Shows figures of one kind."""

    def __init__(
        self, name: str, figure: Figure, backend: Backend, *, height: int, beside: Widget | None = None
    ) -> None:
        """Take `beside` to show the table always, beside the chart, with that widget below both."""
        self._class = name_class(name)
        self.title = HTML()
        self.legend = HTML()
        self.table = HTML()
        self.chart = chart(backend, height)
        self.toggle = ToggleButton(description="table", tooltip=f"{figure.title} as a table")
        self.toggle.value = backend == "none" or beside is not None
        self.toggle.observe(self._show_table, "value")
        self._drawn = self._told = float("-inf")
        self.table_waits = False
        """The table tells less than the chart shows."""
        self.widget = self._laid_out(beside)
        self.names = {f"{self._class}-table": self.toggle.tooltip, f"{self._class}-chart": figure.title}
        self.draw(figure)

    def _laid_out(self, beside: Widget | None) -> VBox:
        self.toggle.add_class(f"{self._class}-table")
        self.toggle.add_class("memlab-small")
        picture = VBox([self.chart.widget, self.legend])
        picture.add_class("memlab-chart")
        picture.add_class(f"{self._class}-chart")
        head = HBox([self.title] if beside else [self.title, self.toggle])
        head.add_class("memlab-card-head")
        pair = HBox([picture, self.table])
        pair.add_class("memlab-peaks")
        card = VBox([head, pair, beside] if beside else [head, picture, self.table])
        card.add_class("memlab-card")
        return card

    @property
    def figure(self) -> Figure:
        """What is shown."""
        assert self.chart.figure is not None
        return self.chart.figure

    def due(self) -> bool:
        """Tell whether the chart may be drawn again while a run goes on."""
        return time.monotonic() - self._drawn >= self.chart.interval * 0.9

    def draw(self, figure: Figure, *, settled: bool = True) -> None:
        """Show `figure`; unless `settled`, more will follow soon, and an open table may wait."""
        self.chart.draw(figure)
        self._drawn = time.monotonic()
        _set(self.title, title_html(figure.title, figure.note))
        _set(self.legend, legend_html(figure) if figure.legend else "")
        self.table_waits = self.toggle.value and not settled and self._drawn - self._told < TABLE_SECONDS
        if not self.table_waits:
            self._show_table()

    def _show_table(self, _change: object = None) -> None:
        self._told, self.table_waits = time.monotonic(), False
        _set(self.table, table_html(self.figure.table) if self.toggle.value else "")


def _set(widget: HTML, html: str) -> None:
    if widget.value != html:
        widget.value = html
