"""Each back end draws the same figures; the browser's gets one message a drawing."""

import html

import numpy as np
import pytest
from hand_made import memory_event, record

from memlab.ui import plotly_chart
from memlab.ui.bench import Bench
from memlab.ui.charts import chart, choose_backend
from memlab.ui.memory_figure import memory_figure
from memlab.ui.plotly_widget import DRAWN, SHOWN, PlotlyView, plotly_library
from memlab.ui.run_figures import loss_figure, loss_scale_figure, run_peaks_figure, step_peaks_figure
from memlab.ui.spec import Figure

FIGURES = (
    memory_figure(None),
    memory_figure(memory_event(reserved=2**26)),
    loss_figure([record("B"), record("A")]),
    run_peaks_figure([record("A"), record("B")]),
    step_peaks_figure([record("A", steps=1)]),
    loss_scale_figure([record("A", loss_scale=1024.0)]),
)


def test_the_browser_gets_what_the_figure_says() -> None:
    drawn = chart("plotly", 200)

    drawn.draw(FIGURES[1])

    assert [trace["name"] for trace in drawn.view.traces] == [series.name for series in FIGURES[1].series]
    for trace, series in zip(drawn.view.traces, FIGURES[1].series, strict=True):
        np.testing.assert_array_equal(np.frombuffer(trace["y"], "<f8"), series.y)
    assert drawn.view.look["yaxis"]["title"]["text"] == "MiB"
    assert len(drawn.view.look["shapes"]) == 2


def test_a_drawing_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = chart("plotly", 200)
    sent: list[dict] = []
    monkeypatch.setattr(drawn.view, "send_state", lambda key=None: sent.append({*(key or ())}))
    monkeypatch.setattr(PlotlyView, "comm", property(lambda self: _OpenComm()))

    drawn.draw(FIGURES[2])

    assert sent == [{"traces", "look"}]


class _OpenComm:
    """What ipywidgets asks of a connection before it sends."""

    kernel = comm_id = "here"


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.title)
def test_the_picture_back_end_draws_every_figure(figure: Figure) -> None:
    drawn = chart("image", 200)

    drawn.draw(figure)

    assert bytes(drawn.widget.value[:4]) == b"\x89PNG"
    assert drawn.figure is figure


def test_pictures_differ_when_the_data_do() -> None:
    drawn = chart("image", 200)
    drawn.draw(loss_figure([record("A", steps=2)]))
    before = drawn.widget.value

    drawn.draw(loss_figure([record("A", steps=3)]))

    assert drawn.widget.value != before


def test_the_library_is_plotly_of_this_environment_and_loaded_once() -> None:
    assert plotly_library() is plotly_library()
    assert "plotly.js" in plotly_library().source[:200]


def test_the_environment_overrides_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMLAB_CHARTS", "image")
    assert choose_backend() == "image"

    monkeypatch.setenv("MEMLAB_CHARTS", "png")
    with pytest.raises(ValueError, match="MEMLAB_CHARTS='png' must be one of plotly, image, none."):
        choose_backend()


@pytest.mark.parametrize("wish", ["", None])
def test_a_wish_that_is_empty_is_no_wish(wish: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMLAB_CHARTS") if wish is None else monkeypatch.setenv("MEMLAB_CHARTS", wish)

    assert choose_backend() == "none"


def test_a_wish_that_is_none_of_ours_is_one_line_of_a_bench_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMLAB_CHARTS", "png")

    bench = Bench()

    assert bench.last_error.startswith("MEMLAB_CHARTS='png' must be one of plotly, image, none.")
    assert bench.last_error in html.unescape(bench._panel.error.value)
    bench.close()


def test_without_a_kernel_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMLAB_CHARTS")

    assert choose_backend() == "none"


def test_a_view_that_is_shown_and_does_not_draw_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plotly_chart, "PATIENCE_SECONDS", -1.0)
    figure = loss_figure([record()])
    drawn = plotly_chart.PlotlyChart(200)
    deaf = drawn.view
    drawn.draw(figure)
    drawn.draw(figure)
    assert drawn.view is deaf, "nobody looks at it"
    deaf._handle_custom_msg(SHOWN, [])
    drawn.draw(figure)
    drawn.draw(figure)
    assert drawn.view is not deaf and drawn.widget.children[-1] is drawn.view
    assert drawn.view.traces[0]["name"] == figure.series[0].name
    answering = drawn.view
    answering._handle_custom_msg(DRAWN, [])
    drawn.draw(figure)
    drawn.draw(figure)
    assert drawn.view is answering


def test_a_runs_name_is_neither_markup_nor_a_template_of_the_browsers_chart() -> None:
    named = record("A")
    named.name = "<b>%{y}</b> & co"
    drawn = chart("plotly", 200)

    drawn.draw(loss_figure([named]))

    words = drawn.view.traces[0]["hovertemplate"]
    assert words == "%{y:.4~g} now: A &lt;b>%&#123;y}&lt;/b> &amp; co<extra></extra>"


def test_a_long_name_is_shortened_where_it_is_shown() -> None:
    named = record("A")
    named.name = "x" * 300

    assert loss_figure([named]).series[0].name == f"now: A {'x' * 37}..."
    assert run_peaks_figure([named]).table.rows[0][0] == f"A {'x' * 37}..."
