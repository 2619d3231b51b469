"""What a chart shows, said once; `interactive` makes it for the browser, `pictures` as PNG."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

INK = -1  # the color of text, dark on light and light on dark
COLORS = (  # Okabe and Ito's, which people of any color vision tell apart; black is INK
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
)
DASHES = 4  # solid, dashed, dotted, both: once the colors are used up
Kind = Literal["line", "points", "bars", "area"]
Numbers = Sequence[float | None]


@dataclass(frozen=True)
class Mark:
    """A line, points or bars. Marks of one name are in the legend once, and hidden together."""

    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float | None] | Sequence[str]
    kind: Kind = "line"
    color: int = INK
    dash: int = 0
    low: Numbers | None = None  # a band around the line
    high: Numbers | None = None
    what: str = ""  # it is, where the name alone does not say it
    text: Sequence[str] | None = None  # of each point, when it is pointed at


@dataclass(frozen=True)
class Axis:
    """What is along an axis."""

    title: str
    percent: bool = False
    log: bool = False
    whole: bool = False  # numbers without fractions
    zero: bool = False  # begins at 0
    range: tuple[float, float] | None = None  # what it shows
    names: Sequence[str] | None = None  # instead of numbers


@dataclass(frozen=True)
class Panel:
    """A pair of axes. Bars lie down if the names are on the y axis."""

    title: str
    marks: Sequence[Mark]
    x: Axis
    y: Axis

    @property
    def lying(self) -> bool:
        """Do the bars lie?"""
        return self.y.names is not None and any(mark.kind == "bars" for mark in self.marks)


@dataclass(frozen=True)
class Heat:
    """A table of numbers in colors; in each row, one cell is the worst."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Numbers]
    texts: Sequence[Sequence[str]]
    worst: Sequence[int | None]  # the column, for each row
    measure: str
    percent: bool


def brightness(heat: Heat, row: int, column: int) -> float:
    """Where a cell is on the color scale, from 0 (bad, dark) to 1 (good, bright)."""
    value = heat.values[row][column]
    known = [number for line in heat.values for number in line if number is not None]
    if value is None or heat.percent:
        return value or 0.0
    low, high = min(known), max(known)
    return (high - value) / (high - low) if high > low else 0.0


@dataclass(frozen=True)
class Chart:
    """Panels with one legend, and a sentence on how to read them."""

    key: str  # also the name of its picture
    title: str
    text: str
    panels: Sequence[Panel | Heat]

    @property
    def legend(self) -> list[Mark]:
        """A mark of each name."""
        found: dict[str, Mark] = {}
        for panel in self.panels:
            for mark in () if isinstance(panel, Heat) else panel.marks:
                found.setdefault(mark.name, mark)
        return list(found.values())


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; the numeric columns are aligned to the right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""  # if it has one, the table is folded under it
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the report."""

    key: str
    title: str
    link: str  # the title, in a word or two
    text: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = field(default=())


def style(number: int) -> tuple[int, int]:
    """Color and dash of the line with this number."""
    return number % len(COLORS), number // len(COLORS) % DASHES


def longest(sections: Iterable[Section]) -> int:
    """The number of points in the longest mark."""
    return max(
        (len(mark.x) for mark in _marks(sections)),
        default=0,
    )


def _marks(sections: Iterable[Section]) -> Iterable[Mark]:
    for section in sections:
        for chart in section.charts:
            for panel in chart.panels:
                yield from () if isinstance(panel, Heat) else panel.marks


def thinned(sections: Sequence[Section], most: int) -> list[Section]:
    """With at most so many points in each line, the first and the last among them."""
    return [
        replace(
            section,
            charts=[
                replace(chart, panels=[_thin_panel(panel, most) for panel in chart.panels])
                for chart in section.charts
            ],
        )
        for section in sections
    ]


def _thin_panel(panel: Panel | Heat, most: int) -> Panel | Heat:
    if isinstance(panel, Heat):
        return panel
    return replace(panel, marks=[_thin(mark, most) for mark in panel.marks])


def _thin(mark: Mark, most: int) -> Mark:
    count = len(mark.x)
    if count <= most or mark.kind == "bars":
        return mark
    picked = sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})

    def some(values: Sequence[object] | None) -> list[object] | None:
        return None if values is None else [values[i] for i in picked]

    changes = {name: some(getattr(mark, name)) for name in ("x", "y", "low", "high", "text")}
    return replace(mark, **changes)  # type: ignore[arg-type]
