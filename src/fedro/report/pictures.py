"""Charts as PNG, drawn with Matplotlib from the same descriptions as the page's."""

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
from fedro.report.chart import COLORS, Axis, Chart, Heat, Mark, Panel, brightness

INK, FRAME = "#1c2024", "#D55E00"
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
FEW = 40


def draw(chart: Chart, folder: Path) -> Path:
    """Write the chart's picture."""
    return save(picture(chart), folder / f"{chart.key}.png")


def picture(chart: Chart) -> Figure:
    """All panels on one sheet, with one legend under them."""
    columns = 1 if isinstance(chart.panels[0], Heat) else min(3, len(chart.panels))
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
            if isinstance(panel, Heat):
                _draw_heat(axes, panel)
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


def plain(text: str, most: int = 60) -> str:
    """Matplotlib reads mathematics between dollar signs; here a text is a text, if a short one."""
    short = text if len(text) <= most else text[: most - 1] + "…"
    return short.replace("$", r"\$")


def _width(panel: Panel | Heat) -> float:
    return 4.0 + 0.85 * len(panel.columns) if isinstance(panel, Heat) else 0.0


def _height(panel: Panel | Heat) -> float:
    if isinstance(panel, Heat):
        return 1.2 + 0.035 * min(40, max(map(len, panel.columns))) + 0.4 * len(panel.rows)
    names = len(panel.y.names or ())
    return max(2.9, 1.2 + (0.42 if panel.lying else 0.3) * names)


def _legend(figure: Figure, chart: Chart) -> None:
    marks = chart.legend
    if len(marks) > 1:
        handles = [_handle(mark) for mark in marks]
        columns = max(1, min(5, len(marks), int(figure.get_size_inches()[0] // 2.2)))
        figure.legend(handles=handles, loc="outside lower left", ncols=columns)


def _handle(mark: Mark) -> Line2D | Patch:
    color, label = _color(mark), plain(mark.name)
    if mark.kind in ("bars", "area"):
        return Patch(color=color, label=label)
    if mark.kind == "points":
        return Line2D([], [], color=color, marker="o", ls="", ms=4, label=label)
    return Line2D([], [], color=color, ls=DASHES[mark.dash], label=label)


def _color(mark: Mark) -> str:
    return INK if mark.color < 0 else COLORS[mark.color]


def _draw_panel(axes: Axes, panel: Panel) -> None:
    if panel.lying:
        _draw_lying(axes, panel)
    else:
        floor = [0.0] * max((len(mark.x) for mark in panel.marks), default=0)
        for mark in panel.marks:
            if mark.kind in ("bars", "area"):
                tops = [float(value or 0.0) for value in mark.y]
                step = None if mark.kind == "bars" else "mid"
                _stack(axes, mark, floor[: len(tops)], tops, step)
                floor = [a + b for a, b in zip(floor, tops, strict=False)]
            else:
                _draw_mark(axes, mark, panel)
    _set_axis(axes, "x", panel.x)
    _set_axis(axes, "y", panel.y, panel.lying)


def _stack(axes: Axes, mark: Mark, floor: list[float], tops: list[float], step: Any) -> None:
    x: list[Any] = list(mark.x)
    if step is None:
        axes.bar(x, tops, bottom=floor, color=_color(mark), width=0.85)
    else:
        upper = [a + b for a, b in zip(floor, tops, strict=True)]
        axes.fill_between(x, floor, upper, step=step, color=_color(mark), lw=0)


def _draw_mark(axes: Axes, mark: Mark, panel: Panel) -> None:
    names = {name: number for number, name in enumerate(panel.y.names or ())}
    x: list[Any] = list(mark.x)
    y = [math.nan if v is None else names[v] if isinstance(v, str) else v for v in mark.y]
    if mark.kind == "points":
        axes.plot(x, y, "o", ms=3, alpha=0.75, color=_color(mark), mec="none")
        return
    known = sum(not math.isnan(value) for value in y)
    marker = "o" if known <= FEW and mark.color >= 0 else None
    width = 1.4 if len(x) <= 200 else 0.8
    axes.plot(x, y, color=_color(mark), ls=DASHES[mark.dash], lw=width, marker=marker, ms=2.2)
    if mark.low is not None and mark.high is not None:
        low, high = ([math.nan if v is None else v for v in side] for side in (mark.low, mark.high))
        axes.fill_between(x, low, high, color=_color(mark), alpha=0.17, lw=0)


def _draw_lying(axes: Axes, panel: Panel) -> None:
    names = list(panel.y.names or ())
    ends = [0.0] * len(names)
    for mark in panel.marks:
        widths = [float(value) for value in mark.x]
        axes.barh(range(len(names)), widths, left=ends, height=0.4, color=_color(mark))
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


def _set_axis(axes: Axes, which: str, axis: Axis, lying: bool = False) -> None:
    side = axes.xaxis if which == "x" else axes.yaxis
    side.set_label_text(plain(axis.title))
    limit = axes.set_xlim if which == "x" else axes.set_ylim
    if axis.names is not None:
        names = (
            [] if lying else [plain(name, 36) for name in axis.names]
        )  # they are above lying bars
        side.set_ticks(range(len(names)), names)
        return
    if axis.log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    if axis.range is not None:
        low, high = axis.range
        room = (high / low) ** 0.025 if axis.log else 0.025 * (high - low)
        limit(*((low / room, high * room) if axis.log else (low - room, high + room)))
    elif axis.zero:
        limit(0, None)
    if axis.percent:
        side.set_major_formatter(PercentFormatter(1, decimals=0))
    if axis.whole:
        side.set_major_locator(MaxNLocator(integer=True))


def _draw_heat(axes: Axes, heat: Heat) -> None:
    shape = range(len(heat.rows)), range(len(heat.columns))
    shade = [[brightness(heat, row, column) for column in shape[1]] for row in shape[0]]
    for row in shape[0]:
        shade[row] = [
            math.nan if value is None else place
            for value, place in zip(heat.values[row], shade[row], strict=True)
        ]
    axes.imshow(shade, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for row in shape[0]:
        for column in shape[1]:
            dark = shade[row][column] <= 0.45  # and not where there is nothing
            text = plain(heat.texts[row][column])
            axes.text(column, row, text, ha="center", va="center", color="w" if dark else INK)
        if (worst := heat.worst[row]) is not None:
            place = (worst - 0.5, row - 0.5)
            axes.add_patch(Rectangle(place, 1, 1, fill=False, ec=FRAME, lw=2.5, clip_on=False))
    axes.set_xticks(
        list(shape[1]), [plain(name, 40) for name in heat.columns], rotation=25, ha="right"
    )
    axes.set_yticks(list(shape[0]), [plain(name, 40) for name in heat.rows])
    axes.grid(False)
    axes.spines[:].set_visible(False)
