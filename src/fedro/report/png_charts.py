"""Charts as PNG files, drawn with Matplotlib from the same descriptions as those of the page."""

import math
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedro.common.figures import STYLE, save
from fedro.common.palette import CATEGORICAL, TEXT, VERMILION
from fedro.report.chart import Axis, Chart, HeatMap, Panel, Trace, brightness

FRAME_COLOR = VERMILION
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
MAX_MARKERS = 40


def write_png(chart: Chart, folder: Path) -> Path:
    """Draw a chart and save it in the folder under its key."""
    return save(draw_chart(chart), folder / f"{chart.key}.png")


def draw_chart(chart: Chart) -> Figure:
    """A figure with all panels of a chart and one legend below them."""
    columns = 1 if isinstance(chart.panels[0], HeatMap) else min(3, len(chart.panels))
    rows = math.ceil(len(chart.panels) / columns)
    width = 7.2 if columns == 1 else 4.0 * columns
    with plt.rc_context({**STYLE, "font.size": 9}):
        figure = plt.figure(
            figsize=(
                max(width, *map(_width, chart.panels)),
                rows * max(map(_height, chart.panels)),
            ),
            layout="constrained",
        )
        for number, panel in enumerate(chart.panels):
            axes = figure.add_subplot(rows, columns, number + 1)
            if isinstance(panel, HeatMap):
                _draw_heat_map(axes, panel)
            else:
                _draw_panel(axes, panel)
            axes.set_title(
                plain(panel.title, 45 if columns > 1 else 90),
                loc="left",
                fontsize=9,
                fontweight="bold",
            )
        figure.suptitle(plain(chart.title), x=0.01, ha="left")
        _legend(figure, chart)
    return figure


def plain(text: str, max_length: int = 60) -> str:
    """Shorten the text, and keep Matplotlib from reading mathematics between dollar signs."""
    shortened = text if len(text) <= max_length else text[: max_length - 1] + "…"
    return shortened.replace("$", r"\$")


def _width(panel: Panel | HeatMap) -> float:
    return 4.0 + 0.85 * len(panel.columns) if isinstance(panel, HeatMap) else 0.0


def _height(panel: Panel | HeatMap) -> float:
    if isinstance(panel, HeatMap):
        return 1.2 + 0.035 * min(40, max(map(len, panel.columns))) + 0.4 * len(panel.rows)
    names = len(panel.y.names or ())
    return max(2.9, 1.2 + (0.42 if panel.horizontal else 0.3) * names)


def _legend(figure: Figure, chart: Chart) -> None:
    traces = chart.legend
    if len(traces) > 1:
        handles = [_handle(trace) for trace in traces]
        columns = max(1, min(5, len(traces), int(figure.get_size_inches()[0] // 2.2)))
        figure.legend(handles=handles, loc="outside lower left", ncols=columns)


def _handle(trace: Trace) -> Line2D | Patch:
    color, label = _color(trace), plain(trace.name)
    if trace.kind in ("bars", "area"):
        return Patch(color=color, label=label)
    if trace.kind == "points":
        marker = "X" if trace.crosses else "o"
        return Line2D([], [], color=color, marker=marker, ls="", ms=4, label=label)
    return Line2D([], [], color=color, ls=DASHES[trace.dash], label=label)


def _color(trace: Trace) -> str:
    return TEXT if trace.color < 0 else CATEGORICAL[trace.color]


def _draw_panel(axes: Axes, panel: Panel) -> None:
    if panel.horizontal:
        _draw_horizontal_bars(axes, panel)
    else:
        floor = [0.0] * max((len(trace.x) for trace in panel.traces), default=0)
        for trace in panel.traces:
            if trace.kind in ("bars", "area"):
                tops = [float(value or 0.0) for value in trace.y]
                step = None if trace.kind == "bars" else "mid"
                _stack(axes, trace, floor[: len(tops)], tops, step)
                floor = [a + b for a, b in zip(floor, tops, strict=False)]
            else:
                _draw_trace(axes, trace, panel)
    _set_axis(axes, "x", panel.x)
    _set_axis(axes, "y", panel.y, panel.horizontal)


def _stack(axes: Axes, trace: Trace, floor: list[float], tops: list[float], step: Any) -> None:
    x: list[Any] = list(trace.x)
    if step is None:
        axes.bar(x, tops, bottom=floor, color=_color(trace), width=0.85)
    else:
        upper = [a + b for a, b in zip(floor, tops, strict=True)]
        axes.fill_between(x, floor, upper, step=step, color=_color(trace), lw=0)


def _draw_trace(axes: Axes, trace: Trace, panel: Panel) -> None:
    names = {name: number for number, name in enumerate(panel.y.names or ())}
    x: list[Any] = list(trace.x)
    y = [math.nan if v is None else names[v] if isinstance(v, str) else v for v in trace.y]
    if trace.kind == "points":
        shape, size = ("X", 5) if trace.crosses else ("o", 3)
        axes.plot(x, y, shape, ms=size, alpha=0.75, color=_color(trace), mec="none")
        return
    known = sum(not math.isnan(value) for value in y)
    marker = "o" if known <= MAX_MARKERS and trace.color >= 0 else None
    width = 1.4 if len(x) <= 200 else 0.8
    axes.plot(x, y, color=_color(trace), ls=DASHES[trace.dash], lw=width, marker=marker, ms=2.2)
    if trace.low is not None and trace.high is not None:
        low, high = (
            [math.nan if v is None else v for v in side] for side in (trace.low, trace.high)
        )
        axes.fill_between(x, low, high, color=_color(trace), alpha=0.17, lw=0)


def _draw_horizontal_bars(axes: Axes, panel: Panel) -> None:
    names = list(panel.y.names or ())
    ends = [0.0] * len(names)
    for trace in panel.traces:
        widths = [float(value) for value in trace.x]
        axes.barh(range(len(names)), widths, left=ends, height=0.4, color=_color(trace))
        ends = [a + b for a, b in zip(ends, widths, strict=True)]
    for number, name in enumerate(names):
        axes.annotate(
            plain(name),
            (0, number - 0.22),
            xytext=(2, 1),
            textcoords="offset points",
            va="bottom",
            fontsize=8,
        )
    axes.set_ylim(len(names) - 0.5, -0.8)


def _set_axis(axes: Axes, which: str, axis: Axis, unlabeled: bool = False) -> None:
    side = axes.xaxis if which == "x" else axes.yaxis
    side.set_label_text(plain(axis.title))
    limit = axes.set_xlim if which == "x" else axes.set_ylim
    if axis.names is not None:
        names = [] if unlabeled else [plain(name, 36) for name in axis.names]
        side.set_ticks(range(len(names)), names)
        return
    if axis.log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    if axis.range is not None:
        low, high = axis.range
        margin = (high / low) ** 0.025 if axis.log else 0.025 * (high - low)
        limit(*((low / margin, high * margin) if axis.log else (low - margin, high + margin)))
    elif axis.from_zero:
        limit(0, None)
    if axis.percent:
        side.set_major_formatter(PercentFormatter(1, decimals=0))
    if axis.integers:
        side.set_major_locator(MaxNLocator(integer=True))


def _draw_heat_map(axes: Axes, heat_map: HeatMap) -> None:
    shape = range(len(heat_map.rows)), range(len(heat_map.columns))
    shade = [[brightness(heat_map, row, column) for column in shape[1]] for row in shape[0]]
    for row in shape[0]:
        shade[row] = [
            math.nan if value is None else place
            for value, place in zip(heat_map.values[row], shade[row], strict=True)
        ]
    axes.imshow(shade, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for row in shape[0]:
        for column in shape[1]:
            dark = shade[row][column] <= 0.45  # and not where there is nothing
            text = plain(heat_map.texts[row][column])
            axes.text(column, row, text, ha="center", va="center", color="w" if dark else TEXT)
        if (worst := heat_map.worst[row]) is not None:
            place = (worst - 0.5, row - 0.5)
            axes.add_patch(
                Rectangle(place, 1, 1, fill=False, ec=FRAME_COLOR, lw=2.5, clip_on=False)
            )
    axes.set_xticks(
        list(shape[1]), [plain(name, 40) for name in heat_map.columns], rotation=25, ha="right"
    )
    axes.set_yticks(list(shape[0]), [plain(name, 40) for name in heat_map.rows])
    axes.grid(False)
    axes.spines[:].set_visible(False)
