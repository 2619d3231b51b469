"""Descriptions of charts, tables and sections.

`plotly_charts` draws a `Chart` for the browser, `png_charts` as a PNG file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fedro.common.palette import CATEGORICAL

INK = -1  # the color of text: dark on light paper, light on dark paper
DASH_STYLES = 4  # solid, dashed, dotted, dash-dotted: used once the colors run out
TraceKind = Literal["line", "points", "bars", "area"]
Numbers = Sequence[float | None]


@dataclass(frozen=True)
class Trace:
    """A line, points or bars.

    Traces with the same name share one entry of the legend, which hides or shows all of them.
    """

    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float | None] | Sequence[str]
    kind: TraceKind = "line"
    color: int = INK
    dash: int = 0
    low: Numbers | None = None  # the lower edge of a band around the line
    high: Numbers | None = None
    measure: str = ""  # what is drawn, where the name alone does not say it
    text: Sequence[str] | None = None  # shown when the pointer is over a point
    crosses: bool = False  # points as larger crosses


@dataclass(frozen=True)
class Axis:
    """The title and scale of an axis."""

    title: str
    percent: bool = False
    log: bool = False
    integers: bool = False  # tick labels without fractions
    from_zero: bool = False
    range: tuple[float, float] | None = None
    names: Sequence[str] | None = None  # categories instead of numbers


@dataclass(frozen=True)
class Panel:
    """A pair of axes with traces. Bars are horizontal if the categories are on the y axis."""

    title: str
    traces: Sequence[Trace]
    x: Axis
    y: Axis

    @property
    def horizontal(self) -> bool:
        """Whether the panel has horizontal bars."""
        return self.y.names is not None and any(trace.kind == "bars" for trace in self.traces)


@dataclass(frozen=True)
class HeatMap:
    """A colored table of numbers in which the worst cell of each row is framed."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Numbers]
    texts: Sequence[Sequence[str]]
    worst: Sequence[int | None]  # the column of the worst cell in each row
    measure: str
    percent: bool


def brightness(heat_map: HeatMap, row: int, column: int) -> float:
    """Position of a cell on the color scale, from 0 (bad, dark) to 1 (good, bright)."""
    value = heat_map.values[row][column]
    known = [number for line in heat_map.values for number in line if number is not None]
    if value is None or heat_map.percent:
        return value or 0.0
    low, high = min(known), max(known)
    return (high - value) / (high - low) if high > low else 0.0


@dataclass(frozen=True)
class Chart:
    """Panels with one legend, and a text on how to read them."""

    key: str  # also the name of the PNG file
    title: str
    text: str
    panels: Sequence[Panel | HeatMap]

    @property
    def legend(self) -> list[Trace]:
        """The first trace with each name."""
        traces: dict[str, Trace] = {}
        for panel in self.panels:
            for trace in () if isinstance(panel, HeatMap) else panel.traces:
                traces.setdefault(trace.name, trace)
        return list(traces.values())


@dataclass(frozen=True)
class TextTable:
    """Rows of text under a header. The page aligns numeric columns to the right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""  # a table with a title is collapsed under it
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A section of the report."""

    key: str
    title: str
    link: str  # a short title for the navigation
    text: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[TextTable] = field(default=())


def line_style(number: int) -> tuple[int, int]:
    """Color and dash style of the line with this number."""
    return number % len(CATEGORICAL), number // len(CATEGORICAL) % DASH_STYLES


def max_points(sections: Iterable[Section]) -> int:
    """The number of points in the longest trace."""
    return max((len(trace.x) for trace in _traces(sections)), default=0)


def _traces(sections: Iterable[Section]) -> Iterable[Trace]:
    for section in sections:
        for chart in section.charts:
            for panel in chart.panels:
                yield from () if isinstance(panel, HeatMap) else panel.traces


def thin_sections(sections: Sequence[Section], limit: int) -> list[Section]:
    """Keep at most `limit` points of each line, always including the first and the last."""
    return [
        replace(
            section,
            charts=[
                replace(chart, panels=[_thin_panel(panel, limit) for panel in chart.panels])
                for chart in section.charts
            ],
        )
        for section in sections
    ]


def _thin_panel(panel: Panel | HeatMap, limit: int) -> Panel | HeatMap:
    if isinstance(panel, HeatMap):
        return panel
    return replace(panel, traces=[_thin_trace(trace, limit) for trace in panel.traces])


def _thin_trace(trace: Trace, limit: int) -> Trace:
    count = len(trace.x)
    if count <= limit or trace.kind == "bars":
        return trace
    picked = sorted({round(i * (count - 1) / (limit - 1)) for i in range(limit)})

    def pick(values: Sequence[object] | None) -> list[object] | None:
        return None if values is None else [values[i] for i in picked]

    changes = {name: pick(getattr(trace, name)) for name in ("x", "y", "low", "high", "text")}
    return replace(trace, **changes)  # type: ignore[arg-type]
