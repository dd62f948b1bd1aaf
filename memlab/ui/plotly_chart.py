"""The plotly back end: existing traces rewritten in one batched update, no figure built twice."""

import plotly.graph_objects as go

from memlab.ui.spec import Figure, Mark, Series, Span

SHADE = "rgba(128, 128, 128, 0.13)"
INK = "#444444"
"""Where no style sheet says otherwise (the panel's does, for each theme)."""
MARGIN = {"l": 56, "r": 14, "t": 22, "b": 40}


class PlotlyChart:
    """Draws figures into one FigureWidget."""

    interval = 0.1

    def __init__(self, height: int) -> None:
        self.figure: Figure | None = None
        self.widget = go.FigureWidget(layout=_layout(height))
        # The style sheet sets the width; the modebar hides what lies under it.
        self.widget._config = {"responsive": True, "displayModeBar": False}

    def draw(self, figure: Figure) -> None:
        """Write `figure` into the traces; add one only where there was never one before."""
        missing = figure.series[len(self.widget.data) :]
        if missing:
            self.widget.add_traces([_empty(series) for series in missing])
        with self.widget.batch_update():
            for trace, series in zip(self.widget.data, figure.series, strict=False):
                _write(trace, series)
            for trace in self.widget.data[len(figure.series) :]:
                if trace.visible is not False:
                    trace.update(visible=False, x=[], y=[])
            self._write_layout(figure)
        self.figure = figure

    def _write_layout(self, figure: Figure) -> None:
        layout, old = self.widget.layout, self.figure
        layout.xaxis.title.text, layout.yaxis.title.text = figure.x_label, figure.y_label
        if old is None or old.y_range != figure.y_range:
            layout.yaxis.range = figure.y_range
            layout.yaxis.autorange = figure.y_range is None
        if old is None or old.x_range != figure.x_range:
            layout.xaxis.range = figure.x_range
            layout.xaxis.autorange = figure.x_range is None
        if old is None:
            layout.yaxis.type = "log" if figure.log_y else "linear"
        if old is None or (old.spans, old.mark) != (figure.spans, figure.mark):
            layout.shapes = [_shade(span) for span in figure.spans if span.shaded]
            layout.annotations = [
                *(_name(span) for span in figure.spans if span.label),
                *([_named_point(figure.mark, figure.x_range)] if figure.mark else []),
            ]


def _layout(height: int) -> dict:
    axis = {
        "gridcolor": "rgba(128, 128, 128, 0.25)",
        "zeroline": False,
        "fixedrange": False,
        "title": {"font": {"size": 12}, "standoff": 6},
        "tickfont": {"size": 12},
    }
    return {
        "height": height,
        "autosize": True,
        "margin": MARGIN,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": INK, "family": "system-ui, sans-serif"},
        "showlegend": False,
        "barmode": "stack",
        "bargap": 0.35,
        "hovermode": "x unified",
        "hoverlabel": {"bgcolor": "#ffffff", "font": {"color": "#222222", "size": 11}},
        "uirevision": "keep",
        "xaxis": {**axis, "nticks": 8},
        "yaxis": {**axis, "nticks": 6, "rangemode": "tozero"},
    }


def _empty(series: Series) -> go.Scatter | go.Bar:
    if series.kind == "bar":
        return go.Bar(marker={"line": {"width": 0}})
    if series.kind == "line":
        return go.Scatter(mode="lines", line={"width": 2})
    return go.Scatter(mode="lines", line={"width": 0, "shape": "hv"}, stackgroup="bytes")


def _write(trace: go.Scatter | go.Bar, series: Series) -> None:
    trace.x, trace.y = series.x, series.y
    if trace.name != series.name or trace.visible is False:
        trace.name, trace.visible = series.name, True
        trace.hovertemplate = f"%{{y:.4~g}} {series.name.replace('<', '&lt;')}<extra></extra>"
    colour = trace.marker.color if series.kind == "bar" else trace.line.color
    if colour != series.colour or (series.kind == "line" and trace.line.dash != series.dash):
        _paint(trace, series)


def _paint(trace: go.Scatter | go.Bar, series: Series) -> None:
    match series.kind:
        case "bar":
            trace.marker.color = series.colour
        case "area":
            trace.fillcolor = trace.line.color = series.colour
        case "line":
            trace.update(line={"color": series.colour, "dash": series.dash})


def _shade(span: Span) -> dict:
    edges = {"x0": span.first, "x1": span.last, "y0": 0, "y1": 1}
    return {
        "type": "rect",
        "yref": "paper",
        "layer": "below",
        "line": {"width": 0},
        "fillcolor": SHADE,
        **edges,
    }


def _name(span: Span) -> dict:
    place = {"x": (span.first + span.last) / 2, "y": 1, "yref": "paper", "yanchor": "bottom"}
    return {"text": span.label, "showarrow": False, "font": {"size": 11}, **place}


def _named_point(mark: Mark, x_range: tuple[float, float] | None) -> dict:
    first, last = x_range or (mark.x, mark.x)
    place = (mark.x - first) / (last - first) if last > first else 0.5
    anchor = "left" if place < 0.15 else "right" if place > 0.85 else "center"
    arrow = {"showarrow": True, "arrowhead": 2, "arrowwidth": 1.2, "arrowcolor": INK, "ax": 0, "ay": -18}
    return {
        "text": f"<b>{mark.text}</b>",
        "x": mark.x,
        "y": mark.y,
        "xanchor": anchor,
        "font": {"size": 12},
        **arrow,
    }
