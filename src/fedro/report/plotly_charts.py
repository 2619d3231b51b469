"""Charts for the browser, as Plotly data and layout. The page's script adds the colors."""

import html
import math
from typing import Any

from fedro.common.palette import CATEGORICAL, TEXT, VERMILION
from fedro.report.chart import Axis, Chart, HeatMap, Panel, Trace, brightness

DASHES = ("solid", "dash", "dot", "dashdot")
THEMES = {
    "light": {"ink": TEXT, "grid": "#e2e6ea", "paper": "#ffffff", "colors": CATEGORICAL},
    "dark": {"ink": "#e8eaed", "grid": "#363c43", "paper": "#15181c", "colors": CATEGORICAL},
}
MAX_MARKERS = 40  # a line with more points is drawn without markers
BAR_HEIGHT, CELL_WIDTH = 46, 62  # pixels; the height includes the bar's name
FRAME_COLOR = VERMILION


def plotly_panels(chart: Chart) -> list[dict[str, Any]]:
    """Data, layout and size of each panel."""
    wide = len(chart.panels) == 1
    return [
        _heat_map(panel) if isinstance(panel, HeatMap) else _panel(panel, wide)
        for panel in chart.panels
    ]


def escape_markup(text: str) -> str:
    """Keep Plotly from interpreting tags in the text."""
    return html.escape(text, quote=False)


def _panel(panel: Panel, wide: bool) -> dict[str, Any]:
    traces = [item for trace in panel.traces for item in _plotly_traces(trace, panel)]
    layout: dict[str, Any] = {
        "xaxis": _axis(panel.x),
        "yaxis": _axis(panel.y),
        "hovermode": "x unified" if _unified(panel) else "closest",
        "barmode": "stack",
        "bargap": 0.15,
    }
    height = 340 if wide else 270
    if panel.horizontal:
        names = panel.y.names or ()
        height = 70 + BAR_HEIGHT * len(names)
        layout["annotations"] = [_above_bar(name) for name in names]
        layout["yaxis"] |= {"showticklabels": False, "autorange": "reversed"}
        layout["bargap"] = 0.62
    elif panel.y.names is not None:
        height = max(200, 80 + 30 * len(panel.y.names))
    return {"data": traces, "layout": layout, "height": height, "width": 0}


def _unified(panel: Panel) -> bool:
    """Whether one hover box can show all lines."""
    lines = [trace for trace in panel.traces if trace.kind == "line"]
    return len(lines) == len(panel.traces) <= 8


def _axis(axis: Axis) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "title": {"text": escape_markup(axis.title), "standoff": 8},
        "automargin": True,
    }
    if axis.names is not None:
        return layout | {
            "type": "category",
            "categoryarray": [escape_markup(n) for n in axis.names],
        }
    layout["type"] = "log" if axis.log else "linear"
    if axis.range is not None:
        layout["range"] = padded(axis)
    if axis.percent:
        layout["tickformat"] = ".0%"
    if axis.log:
        layout |= {"exponentformat": "power", "dtick": _decades(axis)}
    if axis.integers:
        layout |= {"tickformat": ",d"}
    if axis.from_zero:
        layout |= {"rangemode": "tozero"}
    return layout


def padded(axis: Axis) -> list[float]:
    """The range with a margin of 2.5%; for a log axis, the range of the logarithms."""
    assert axis.range is not None
    low, high = map(math.log10, axis.range) if axis.log else axis.range
    margin = 0.025 * (high - low)
    return [low - margin, high + margin]


def _decades(axis: Axis) -> int | str | None:
    """Decades between tick labels, for about six labels; "D2" means 1, 2, 5, 10, …"""
    if axis.range is None:
        return None
    low, high = map(math.log10, axis.range)
    return "D2" if high - low < 2.5 else math.ceil((high - low) / 6)


def _above_bar(name: str) -> dict[str, Any]:
    place = {"x": 0, "y": escape_markup(name), "xanchor": "left", "yanchor": "bottom", "yshift": 8}
    return {**place, "text": escape_markup(name), "showarrow": False, "align": "left"}


def _plotly_traces(trace: Trace, panel: Panel) -> list[dict[str, Any]]:
    """The trace, preceded by the two edges of its band if it has one."""
    x = [escape_markup(v) if isinstance(v, str) else v for v in trace.x]
    y = [escape_markup(v) if isinstance(v, str) else v for v in trace.y]
    common = {"x": x, "meta": {"name": trace.name, "color": trace.color, "role": trace.kind}}
    item: dict[str, Any] = {
        **common,
        "y": y,
        "name": escape_markup(trace.name),
        "showlegend": False,
    }
    if trace.kind == "bars":
        item |= {"type": "bar", "orientation": "h" if panel.horizontal else "v"}
    else:
        item |= {"type": "scatter", **_line_or_markers(trace)}
    if trace.text is not None:
        item["text"] = [escape_markup(text) for text in trace.text]
    if trace.low is not None and trace.high is not None:
        item["customdata"] = list(zip(trace.low, trace.high, strict=True))
    item["hovertemplate"] = _hover(trace, panel)
    return [*_band(trace, common), item]


def _line_or_markers(trace: Trace) -> dict[str, Any]:
    if trace.kind == "points":
        cross = {"symbol": "x", "size": 9} if trace.crosses else {"size": 6}
        return {"mode": "markers", "marker": {**cross, "opacity": 0.75}}
    if trace.kind == "area":
        return {"mode": "lines", "line": {"shape": "hvh", "width": 0.5}, "stackgroup": "all"}
    known = sum(value is not None for value in trace.y)
    mode = "lines+markers" if known <= MAX_MARKERS and trace.color >= 0 else "lines"
    line = {"dash": DASHES[trace.dash], "width": 2 if len(trace.x) <= 200 else 1.2}
    return {"mode": mode, "line": line, "marker": {"size": 4}, "connectgaps": False}


def _band(trace: Trace, common: dict[str, Any]) -> list[dict[str, Any]]:
    if trace.low is None or trace.high is None:
        return []
    rest = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "showlegend": False}
    edge = {**common, **rest, "hoverinfo": "skip"}
    low = {**edge, "y": trace.low, "meta": {**common["meta"], "role": "low"}}
    high = {**edge, "y": trace.high, "meta": {**common["meta"], "role": "high"}}
    return [low, {**high, "fill": "tonexty"}]


def _hover(trace: Trace, panel: Panel) -> str:
    if trace.text is not None:
        where = "round %{x}: " if panel.x.title.startswith("round") else ""
        return f"{where}%{{text}}<extra></extra>"
    form = ".1%" if panel.y.percent else ".4g"
    along, value = ("y", f"x:{form}") if panel.horizontal else ("x", f"y:{form}")
    name = escape_markup(f"{trace.name}, {trace.measure}" if trace.measure else trace.name)
    band = ""
    if trace.low is not None:
        band = f" (%{{customdata[0]:{form}}} – %{{customdata[1]:{form}}})"
    where = "" if _unified(panel) else f" at %{{{along}}}"
    return f"{name}{where}: %{{{value}}}{band}<extra></extra>"


def _heat_map(heat_map: HeatMap) -> dict[str, Any]:
    measure = escape_markup(heat_map.measure)
    item: dict[str, Any] = {
        "type": "heatmap",
        "x": [escape_markup(name) for name in heat_map.columns],
        "y": [escape_markup(name) for name in heat_map.rows],
        "z": heat_map.values,
        "text": heat_map.texts,
        "hovertemplate": f"%{{y}}<br>%{{x}}<br>{measure} %{{text}}<extra></extra>",
        "hoverongaps": False,
        "colorscale": "Cividis",
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "meta": {"name": "", "color": 0, "role": "heat"},
    }
    item |= {"zmin": 0, "zmax": 1} if heat_map.percent else {"reversescale": True}
    angle = -35 if max(map(len, heat_map.columns)) > 6 else 0
    category = {"type": "category", "automargin": True, "showgrid": False}
    layout = {
        "xaxis": {**category, "side": "top", "tickangle": angle},
        "yaxis": {**category, "autorange": "reversed"},
        "annotations": [
            _cell_text(heat_map, row, column)
            for row in range(len(heat_map.rows))
            for column in range(len(heat_map.columns))
        ],
        "shapes": [
            _frame(row, column) for row, column in enumerate(heat_map.worst) if column is not None
        ],
        "hovermode": "closest",
    }
    width = 40 + 7 * max(map(len, heat_map.rows)) + CELL_WIDTH * len(heat_map.columns)
    names = 4 * max(map(len, heat_map.columns)) if angle else 0
    return {
        "data": [item],
        "layout": layout,
        "height": 60 + names + 40 * len(heat_map.rows),
        "width": width,
    }


def _cell_text(heat_map: HeatMap, row: int, column: int) -> dict[str, Any]:
    """The number in a cell, black on bright cells and white on dark ones."""
    font = {"color": "#000000" if brightness(heat_map, row, column) > 0.45 else "#ffffff"}
    if heat_map.values[row][column] is None:
        font = {}
    return {
        "x": column,
        "y": row,
        "text": heat_map.texts[row][column],
        "showarrow": False,
        "font": font,
    }


def _frame(row: int, column: int) -> dict[str, Any]:
    place = {"x0": column - 0.5, "x1": column + 0.5, "y0": row - 0.5, "y1": row + 0.5}
    return {"type": "rect", **place, "line": {"color": FRAME_COLOR, "width": 3.5}}
