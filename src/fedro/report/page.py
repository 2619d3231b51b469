"""The report as one page that needs nothing else: text, tables, charts and what draws them."""

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedro.common.text import counted
from fedro.report.chart import Chart, Heat, Mark, Section, Table, longest, thinned
from fedro.report.interactive import THEMES, plots
from fedro.report.runs import Run
from fedro.report.series import Study

ASSETS = Path(__file__).parent / "assets"
LIMIT = 10_000_000  # bytes of charts in a page, besides the library that draws them
POLICY = (  # whatever a run folder holds, the page asks nobody for anything
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
NUMBER = re.compile(
    r"[\d.]+(e[+-]\d+)?%?( \(.*\)| of \d+| ms|( – |–)[\d.]+(e[+-]\d+)?( of \d+)?)?|–|none|"
)
DASHES = ("", "7 4", "2 3", "8 3 2 3")


def page(study: Study, sections: Sequence[Section], limit: int = LIMIT) -> str:
    """The page; points are left out if it would be too large otherwise."""
    from plotly.offline import get_plotlyjs

    sections, data, note = fitting(sections, limit)
    notes = [*study.notes, *note]
    body = [_section(section) for section in sections]
    names = [(section.key, section.link) for section in sections] + [("again", "Run it again")]
    links = "".join(f'<li><a href="#{key}">{escape(title)}</a></li>' for key, title in names)
    asset = {name: (ASSETS / f"report.{name}").read_text("utf-8") for name in ("css", "js")}
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(_title(study))}</title>
<style>
{asset["css"]}</style>
</head>
<body>
<header>
<h1>{escape(_title(study))}</h1>
<p class="soft">{_made(study.runs)}<span class="hint">. Click a name in a legend to hide or show
it, twice to see it alone.</span> <span class="hint drag">Drag in a chart to zoom, click twice to
go back.</span></p>
{_notes(notes)}
<noscript><p class="notes">The charts need JavaScript; the tables do not.</p></noscript>
</header>
<nav aria-label="Contents"><ul>{links}</ul></nav>
<main>
{"".join(body)}{_again(study)}</main>
<footer class="soft">Made by fedro from the run folders alone.</footer>
<script type="application/json" id="charts">{data}</script>
<script>{get_plotlyjs()}</script>
<script>
{asset["js"]}</script>
</body>
</html>
"""


def fitting(sections: Sequence[Section], limit: int) -> tuple[Sequence[Section], str, list[str]]:
    """The sections with as many points as the limit allows, their data, and what to say of it."""
    data, most, full = _data(sections), longest(sections), longest(sections)
    shown = sections
    while len(data) > limit and most > 20:
        most = most // 2
        shown = thinned(sections, most)
        data = _data(shown)
    if shown is sections:
        return sections, data, []
    note = (
        f"To keep this page small, lines are drawn with at most {most} of up to {full} points, "
        "evenly spread, the first and the last among them. Tables count all; rounds.csv (--csv) "
        "has all."
    )
    return shown, data, [note]


def _data(sections: Sequence[Section]) -> str:
    """JSON that cannot end the script element it stands in."""
    found: dict[str, Any] = {
        f"{chart.key}-{number}": {"chart": chart.key, **plot}
        for section in sections
        for chart in section.charts
        for number, plot in enumerate(plots(chart))
    }
    text = json.dumps(
        {"themes": THEMES, "plots": found},
        allow_nan=False,
        separators=(",", ":"),
        default=list,
    )
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _title(study: Study) -> str:
    data = list(dict.fromkeys(str(run.config["dataset"]) for run in study.runs))
    return f"{', '.join(data[:3])}{' …' if len(data) > 3 else ''}: training under attack"


def _made(runs: Sequence[Run]) -> str:
    first, last = min(run.created for run in runs), max(run.created for run in runs)
    days = sorted({first[:10], last[:10]})
    versions = sorted({str(run.versions.get("fedro", "?")) for run in runs})
    return escape(
        f"{counted(len(runs), 'run')} with fedro {', '.join(versions)}, {' to '.join(days)}"
    )


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<div class="notes" role="note"><ul>{items}</ul></div>'


def _section(section: Section) -> str:
    parts = [f"<p>{escape(text)}</p>" for text in section.text]
    parts += [_chart(chart, titled=chart.title != section.title) for chart in section.charts]
    parts += [_table(table) for table in section.tables if table.rows]
    inside = "\n".join(parts)
    title = escape(section.title)
    return f'<section id="{section.key}">\n<h2>{title}</h2>\n{inside}\n</section>\n'


def _chart(chart: Chart, titled: bool) -> str:
    title = f"<h3>{escape(chart.title)}</h3>" if titled else ""
    one = " one" if len(chart.panels) == 1 or isinstance(chart.panels[0], Heat) else ""
    panels = "".join(
        f'<div class="panel">{_panel_title(panel.title)}'
        f'<div class="scroll"><div class="plot" id="{chart.key}-{number}" role="img" '
        f'aria-label="{escape(f"{chart.title}. {panel.title}")}"></div></div></div>'
        for number, panel in enumerate(chart.panels)
    )
    return (
        f'{title}<p>{escape(chart.text)}</p>{_legend(chart)}<div class="panels{one}">{panels}</div>'
    )


def _panel_title(title: str) -> str:
    return f"<h4>{escape(title)}</h4>" if title else ""


def _legend(chart: Chart) -> str:
    marks = chart.legend
    if len(marks) < 2:
        return ""
    keys = "".join(
        f'<button type="button" aria-pressed="true" data-name="{escape(mark.name)}" '
        f'title="hide or show; double click: alone">{_swatch(mark)}{escape(mark.name)}</button>'
        for mark in marks
    )
    return f'<div class="legend" data-chart="{chart.key}">{keys}</div>'


def _swatch(mark: Mark) -> str:
    color = "var(--ink)" if mark.color < 0 else f"var(--c{mark.color})"
    if mark.kind == "line":
        shape = (
            f'<line x1="0" y1="6" x2="26" y2="6" stroke="{color}" stroke-width="2.5" '
            f'stroke-dasharray="{DASHES[mark.dash]}"/>'
        )
    elif mark.kind == "points":
        shape = f'<circle cx="13" cy="6" r="4.5" fill="{color}"/>'
    else:
        shape = f'<rect x="5" y="0" width="16" height="12" rx="2" fill="{color}"/>'
    return f'<svg width="26" height="12" aria-hidden="true">{shape}</svg>'


def _table(table: Table) -> str:
    numeric = [_numeric(column) for column in zip(*table.rows, strict=True)]
    head = _cells("th", table.header, numeric)
    rows = "".join(f"<tr>{_cells('td', row, numeric)}</tr>" for row in table.rows)
    note = f'<p class="soft">{escape(table.note)}</p>' if table.note else ""
    body = (
        f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        f"</div>{note}"
    )
    if table.title:
        return f"<details><summary>{escape(table.title)}</summary>{body}</details>"
    return body


def _cells(tag: str, cells: Iterable[str], numeric: Sequence[bool]) -> str:
    marked = zip(cells, numeric, strict=True)
    return "".join(
        f"<{tag}{' class=num' * right}>{_cell(cell, right)}</{tag}>" for cell, right in marked
    )


def _cell(text: str, right: bool) -> str:
    """A range in parentheses goes under its number."""
    number, bracket, rest = text.partition(" (")
    if right and bracket:
        return f"{escape(number)}<small>{escape(rest.removesuffix(')'))}</small>"
    return escape(text)


def _numeric(column: Sequence[str]) -> bool:
    return all(NUMBER.fullmatch(cell) for cell in column)


def _again(study: Study) -> str:
    """The exact configuration of every run, and what it was run with."""
    runs = "".join(
        _run(series.name, run, f"config-{i}-{j}")
        for i, series in enumerate(study.series)
        for j, run in enumerate(series.runs)
    )
    how = (
        "<p>Each run's exact configuration. Save it as <code>config.toml</code>, then</p>"
        "<pre>fedro run config.toml</pre>"
        "<p>The same versions on the same kind of machine give the same bits.</p>"
    )
    if study.deployed:
        how = "<p>What each run was started with; start its Flower app with the same.</p>"
    return f'<section id="again">\n<h2>Run it again</h2>\n{how}{runs}</section>\n'


def _run(name: str, run: Run, key: str) -> str:
    state = "" if run.finished else ", unfinished"
    facts = {"folder": run.path, "begun": run.created, **run.versions, **run.fingerprint}
    rows = [[str(k), str(v)] for k, v in facts.items() if v is not None]
    table = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in rows)
    own = "an object" in str(run.fingerprint.get("model", ""))
    note = "<p>Its model was given as an object in Python: give it again.</p>" if own else ""
    if run.deployed:
        note = "<p>Its clients were real: this is to read, and not for <code>fedro run</code>.</p>"
    return (
        f'<details class="run"><summary>{escape(name)}, seed {run.seed}{state}</summary>'
        f'<button type="button" class="copy" data-from="{key}">copy</button>{note}'
        f'<pre id="{key}">{escape(run.toml)}</pre>'
        f'<div class="table"><table><tbody>{table}</tbody></table></div></details>'
    )
