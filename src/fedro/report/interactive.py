"""Charts for the browser: data and layout as Plotly takes them; the page's script adds colors."""

import html
import math
from typing import Any

from fedro.report.chart import COLORS, Axis, Chart, Heat, Mark, Panel, brightness

DASHES = ("solid", "dash", "dot", "dashdot")
THEMES = {
    "light": {"ink": "#1c2024", "grid": "#e2e6ea", "paper": "#ffffff", "colors": COLORS},
    "dark": {"ink": "#e8eaed", "grid": "#363c43", "paper": "#15181c", "colors": COLORS},
}
FEW = 40  # points that are still drawn one by one on a line
ROW, CELL = 46, 62  # pixels: the height of a lying bar with its name, the width of a cell
FRAME = "#D55E00"


def plots(chart: Chart) -> list[dict[str, Any]]:
    """One for each panel."""
    wide = len(chart.panels) == 1
    return [
        _heat(panel) if isinstance(panel, Heat) else _plot(panel, wide) for panel in chart.panels
    ]


def clean(text: str) -> str:
    """Plotly reads tags in what it is given: here a text is a text."""
    return html.escape(text, quote=False)


def _plot(panel: Panel, wide: bool) -> dict[str, Any]:
    traces = [trace for mark in panel.marks for trace in _traces(mark, panel)]
    layout: dict[str, Any] = {
        "xaxis": _axis(panel.x),
        "yaxis": _axis(panel.y),
        "hovermode": "x unified" if _unified(panel) else "closest",
        "barmode": "stack",
        "bargap": 0.15,
    }
    height = 340 if wide else 270
    if panel.lying:
        names = panel.y.names or ()
        height = 70 + ROW * len(names)
        layout["annotations"] = [_above_bar(name) for name in names]
        layout["yaxis"] |= {"showticklabels": False, "autorange": "reversed"}
        layout["bargap"] = 0.62
    elif panel.y.names is not None:
        height = max(200, 80 + 30 * len(panel.y.names))
    return {"data": traces, "layout": layout, "height": height, "width": 0}


def _unified(panel: Panel) -> bool:
    """Can all lines be told at once, where one points?"""
    lines = [mark for mark in panel.marks if mark.kind == "line"]
    return len(lines) == len(panel.marks) <= 8


def _axis(axis: Axis) -> dict[str, Any]:
    found: dict[str, Any] = {"title": {"text": clean(axis.title), "standoff": 8}}
    found["automargin"] = True
    if axis.names is not None:
        return found | {"type": "category", "categoryarray": [clean(n) for n in axis.names]}
    found["type"] = "log" if axis.log else "linear"
    if axis.range is not None:
        found["range"] = padded(axis)
    if axis.percent:
        found["tickformat"] = ".0%"
    if axis.log:
        found |= {"exponentformat": "power", "dtick": _decades(axis)}
    if axis.whole:
        found |= {"tickformat": ",d"}
    if axis.zero:
        found |= {"rangemode": "tozero"}
    return found


def padded(axis: Axis) -> list[float]:
    """The range with a little room, so that no line runs along the frame; of logarithms if log."""
    assert axis.range is not None
    low, high = map(math.log10, axis.range) if axis.log else axis.range
    room = 0.025 * (high - low)
    return [low - room, high + room]


def _decades(axis: Axis) -> int | str | None:
    """Between labels: as many as leave six of them; D2 stands for 1, 2, 5, 10, …"""
    if axis.range is None:
        return None
    low, high = map(math.log10, axis.range)
    return "D2" if high - low < 2.5 else math.ceil((high - low) / 6)


def _above_bar(name: str) -> dict[str, Any]:
    place = {"x": 0, "y": clean(name), "xanchor": "left", "yanchor": "bottom", "yshift": 8}
    return {**place, "text": clean(name), "showarrow": False, "align": "left"}


def _traces(mark: Mark, panel: Panel) -> list[dict[str, Any]]:
    """A band is two traces without lines, the space between them filled."""
    x = [clean(v) if isinstance(v, str) else v for v in mark.x]
    y = [clean(v) if isinstance(v, str) else v for v in mark.y]
    common = {"x": x, "meta": {"name": mark.name, "color": mark.color, "role": mark.kind}}
    trace: dict[str, Any] = {**common, "y": y, "name": clean(mark.name), "showlegend": False}
    if mark.kind == "bars":
        trace |= {"type": "bar", "orientation": "h" if panel.lying else "v"}
    else:
        trace |= {"type": "scatter", **_drawn(mark)}
    if mark.text is not None:
        trace["text"] = [clean(text) for text in mark.text]
    if mark.low is not None and mark.high is not None:
        trace["customdata"] = list(zip(mark.low, mark.high, strict=True))
    trace["hovertemplate"] = _hover(mark, panel)
    return [*_band(mark, common), trace]


def _drawn(mark: Mark) -> dict[str, Any]:
    if mark.kind == "points":
        return {"mode": "markers", "marker": {"size": 6, "opacity": 0.75}}
    if mark.kind == "area":
        return {"mode": "lines", "line": {"shape": "hvh", "width": 0.5}, "stackgroup": "all"}
    known = sum(value is not None for value in mark.y)
    mode = "lines+markers" if known <= FEW and mark.color >= 0 else "lines"
    line = {"dash": DASHES[mark.dash], "width": 2 if len(mark.x) <= 200 else 1.2}
    return {"mode": mode, "line": line, "marker": {"size": 4}, "connectgaps": False}


def _band(mark: Mark, common: dict[str, Any]) -> list[dict[str, Any]]:
    if mark.low is None or mark.high is None:
        return []
    rest = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "showlegend": False}
    edge = {**common, **rest, "hoverinfo": "skip"}
    low = {**edge, "y": mark.low, "meta": {**common["meta"], "role": "low"}}
    high = {**edge, "y": mark.high, "meta": {**common["meta"], "role": "high"}}
    return [low, {**high, "fill": "tonexty"}]


def _hover(mark: Mark, panel: Panel) -> str:
    if mark.text is not None:
        return "round %{x}: %{text}<extra></extra>"
    form = ".1%" if panel.y.percent else ".4g"
    along, value = ("y", f"x:{form}") if panel.lying else ("x", f"y:{form}")
    name = clean(f"{mark.name}, {mark.what}" if mark.what else mark.name)
    band = ""
    if mark.low is not None:
        band = f" (%{{customdata[0]:{form}}} – %{{customdata[1]:{form}}})"
    where = "" if _unified(panel) else f" at %{{{along}}}"
    return f"{name}{where}: %{{{value}}}{band}<extra></extra>"


def _heat(found: Heat) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "heatmap",
        "x": [clean(name) for name in found.columns],
        "y": [clean(name) for name in found.rows],
        "z": found.values,
        "text": found.texts,
        "hovertemplate": f"%{{y}}<br>%{{x}}<br>{clean(found.measure)} %{{text}}<extra></extra>",
        "hoverongaps": False,
        "colorscale": "Cividis",
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "meta": {"name": "", "color": 0, "role": "heat"},
    }
    trace |= {"zmin": 0, "zmax": 1} if found.percent else {"reversescale": True}
    angle = -35 if max(map(len, found.columns)) > 6 else 0
    category = {"type": "category", "automargin": True, "showgrid": False}
    layout = {
        "xaxis": {**category, "side": "top", "tickangle": angle},
        "yaxis": {**category, "autorange": "reversed"},
        "annotations": [
            _cell_text(found, row, column)
            for row in range(len(found.rows))
            for column in range(len(found.columns))
        ],
        "shapes": [
            _frame(row, column) for row, column in enumerate(found.worst) if column is not None
        ],
        "hovermode": "closest",
    }
    width = 40 + 7 * max(map(len, found.rows)) + CELL * len(found.columns)
    names = 4 * max(map(len, found.columns)) if angle else 0
    return {
        "data": [trace],
        "layout": layout,
        "height": 60 + names + 40 * len(found.rows),
        "width": width,
    }


def _cell_text(found: Heat, row: int, column: int) -> dict[str, Any]:
    """Black on bright cells, white on dark ones."""
    font = {"color": "#000000" if brightness(found, row, column) > 0.45 else "#ffffff"}
    if found.values[row][column] is None:
        font = {}
    return {
        "x": column,
        "y": row,
        "text": found.texts[row][column],
        "showarrow": False,
        "font": font,
    }


def _frame(row: int, column: int) -> dict[str, Any]:
    place = {"x0": column - 0.5, "x1": column + 0.5, "y0": row - 0.5, "y1": row + 0.5}
    return {"type": "rect", **place, "line": {"color": FRAME, "width": 3.5}}
