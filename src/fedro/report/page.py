"""The report as one self-contained HTML page with text, tables, charts and their script."""

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedro.common.text import counted
from fedro.report import curves, events, results, sampling, suspicion
from fedro.report.chart import Chart, HeatMap, Section, TextTable, Trace, max_points, thin_sections
from fedro.report.plotly_charts import THEMES, plotly_panels
from fedro.report.run_data import RunData
from fedro.report.series import ReportData

ASSETS = Path(__file__).parent / "assets"
MAX_CHART_BYTES = 10_000_000  # in a page, besides the library that draws them
POLICY = (  # whatever text a run folder contains, the page loads nothing
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
NUMBER = re.compile(
    r"[\d.]+(e[+-]\d+)?%?( \(.*\)| of \d+| ms|( – |–)[\d.]+(e[+-]\d+)?( of \d+)?)?|–|none|"
)
DASHES = ("", "7 4", "2 3", "8 3 2 3")


SECTIONS = (  # in the order of the page
    results.overview_section,
    results.heat_map_section,
    curves.accuracy_section,
    curves.clients_section,
    curves.loss_section,
    curves.backdoor_section,
    sampling.byzantine_section,
    suspicion.suspects_section,
    curves.kappa_section,
    events.replies_section,
    events.attack_choices_section,
    events.time_section,
    sampling.invitations_section,
)


def report_sections(data: ReportData) -> list[Section]:
    """The sections for which the runs have data, in the order of the page."""
    return [section for make in SECTIONS if (section := make(data)) is not None]


def render_page(data: ReportData, sections: Sequence[Section], limit: int = MAX_CHART_BYTES) -> str:
    """The HTML page. Charts are drawn with fewer points if they would exceed `limit` bytes."""
    from plotly.offline import get_plotlyjs

    sections, charts, note = fit_to_limit(sections, limit)
    notes = [*data.notes, *note]
    body = [_section(section) for section in sections]
    names = [(section.key, section.link) for section in sections] + [("repeat", "Repeat")]
    links = "".join(f'<li><a href="#{key}">{escape(title)}</a></li>' for key, title in names)
    asset = {name: (ASSETS / f"report.{name}").read_text("utf-8") for name in ("css", "js")}
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(_title(data))}</title>
<style>
{asset["css"]}</style>
</head>
<body>
<header>
<h1>{escape(_title(data))}</h1>
<p class="soft">{_versions(data.runs)}<span class="hint">. Click a name in a legend to hide or show
it, double-click to show it alone.</span> <span class="hint drag">Drag in a chart to zoom,
double-click to zoom out.</span></p>
{_notes(notes)}
<noscript><p class="notes">The charts need JavaScript; the tables work without it.</p></noscript>
</header>
<nav aria-label="Contents"><ul>{links}</ul></nav>
<main>
{"".join(body)}{_repeat(data)}</main>
<footer class="soft">Made by fedro from the run folders.</footer>
<script type="application/json" id="charts">{charts}</script>
<script>{get_plotlyjs()}</script>
<script>
{asset["js"]}</script>
</body>
</html>
"""


def fit_to_limit(
    sections: Sequence[Section], limit: int
) -> tuple[Sequence[Section], str, list[str]]:
    """The sections with as many points as the limit allows, their JSON, and a note if thinned."""
    charts, points, all_points = _chart_json(sections), max_points(sections), max_points(sections)
    shown = sections
    while len(charts) > limit and points > 20:
        points = points // 2
        shown = thin_sections(sections, points)
        charts = _chart_json(shown)
    if shown is sections:
        return sections, charts, []
    note = (
        f"To keep this page small, lines are drawn with at most {points} of up to {all_points} "
        "points, evenly spread, including the first and the last. The tables count all rounds, "
        "and rounds.csv (--csv) contains them."
    )
    return shown, charts, [note]


def _chart_json(sections: Sequence[Section]) -> str:
    """All charts as JSON, escaped so that no text can end the script element."""
    panels: dict[str, Any] = {
        f"{chart.key}-{number}": {"chart": chart.key, **plot}
        for section in sections
        for chart in section.charts
        for number, plot in enumerate(plotly_panels(chart))
    }
    text = json.dumps(
        {"themes": THEMES, "plots": panels},
        allow_nan=False,
        separators=(",", ":"),
        default=list,
    )
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _title(data: ReportData) -> str:
    names = list(dict.fromkeys(str(run.config["dataset"]) for run in data.runs))
    return f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}: training under attack"


def _versions(runs: Sequence[RunData]) -> str:
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
    one = " one" if len(chart.panels) == 1 or isinstance(chart.panels[0], HeatMap) else ""
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
    traces = chart.legend
    if len(traces) < 2:
        return ""
    keys = "".join(
        f'<button type="button" aria-pressed="true" data-name="{escape(trace.name)}" '
        'title="click: hide or show; double-click: show alone">'
        f"{_swatch(trace)}{escape(trace.name)}</button>"
        for trace in traces
    )
    return f'<div class="legend" data-chart="{chart.key}">{keys}</div>'


def _swatch(trace: Trace) -> str:
    color = "var(--ink)" if trace.color < 0 else f"var(--c{trace.color})"
    if trace.kind == "line":
        shape = (
            f'<line x1="0" y1="6" x2="26" y2="6" stroke="{color}" stroke-width="2.5" '
            f'stroke-dasharray="{DASHES[trace.dash]}"/>'
        )
    elif trace.crosses:
        shape = f'<path d="M8 1 18 11M18 1 8 11" stroke="{color}" stroke-width="3.5"/>'
    elif trace.kind == "points":
        shape = f'<circle cx="13" cy="6" r="4.5" fill="{color}"/>'
    else:
        shape = f'<rect x="5" y="0" width="16" height="12" rx="2" fill="{color}"/>'
    return f'<svg width="26" height="12" aria-hidden="true">{shape}</svg>'


def _table(table: TextTable) -> str:
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
    """A range in parentheses is shown below its number."""
    number, bracket, rest = text.partition(" (")
    if right and bracket:
        return f"{escape(number)}<small>{escape(rest.removesuffix(')'))}</small>"
    return escape(text)


def _numeric(column: Sequence[str]) -> bool:
    return all(NUMBER.fullmatch(cell) for cell in column)


def _repeat(data: ReportData) -> str:
    """The configuration, versions and fingerprint of every run."""
    runs = "".join(
        _run(series.name, run, f"config-{i}-{j}")
        for i, series in enumerate(data.series)
        for j, run in enumerate(series.runs)
    )
    how = (
        "<p>The exact configuration of each run. To repeat a run, save its configuration as "
        "<code>config.toml</code> and call</p>"
        "<pre>fedro run config.toml</pre>"
        "<p>With the same versions on the same kind of machine, the result is the same to the "
        "bit.</p>"
    )
    if data.deployed:
        how = (
            "<p>The settings of each run. To repeat a run, start its Flower app with the same "
            "settings.</p>"
        )
    return f'<section id="repeat">\n<h2>Repeat a run</h2>\n{how}{runs}</section>\n'


def _run(name: str, run: RunData, key: str) -> str:
    state = "" if run.finished else ", unfinished"
    details = {"folder": run.path, "created": run.created, **run.versions, **run.fingerprint}
    rows = [[str(k), str(v)] for k, v in details.items() if v is not None]
    table = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in rows)
    own_model = "an object" in str(run.fingerprint.get("model", ""))
    note = "<p>The model was passed as a Python object. Pass it again.</p>" if own_model else ""
    if run.deployed:
        note = "<p>This run used real clients, so <code>fedro run</code> cannot repeat it.</p>"
    return (
        f'<details class="run"><summary>{escape(name)}, seed {run.seed}{state}</summary>'
        f'<button type="button" class="copy" data-from="{key}">copy</button>{note}'
        f'<pre id="{key}">{escape(run.toml)}</pre>'
        f'<div class="table"><table><tbody>{table}</tbody></table></div></details>'
    )
