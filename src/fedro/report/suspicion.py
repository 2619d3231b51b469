"""The section on suspects: which clients lie, against the honest bulk."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from fedro.common.text import counted, percent
from fedro.report.chart import INK, Axis, Chart, Panel, Section, TextTable, Trace
from fedro.report.run_data import RunData
from fedro.report.sampling import BYZANTINE_COLOR, HONEST_COLOR
from fedro.report.series import MAX_PANELS, ReportData, Series
from fedro.server.suspect_report import ClientEvidence, SuspectReport

BULK = 2.0  # the shaded band reaches this many scales from the median
MAX_ROWS = 200  # suspects in the table; suspects.csv has all
KINDS = (  # name, color, crosses, Byzantine (None: unknown), flagged
    ("honest", HONEST_COLOR, False, False, False),
    ("Byzantine", BYZANTINE_COLOR, False, True, False),
    ("honest, suspect", HONEST_COLOR, True, False, True),
    ("Byzantine, suspect", BYZANTINE_COLOR, True, True, True),
    ("not suspect", HONEST_COLOR, False, None, False),
    ("suspect", BYZANTINE_COLOR, True, None, True),
)


class Judged(NamedTuple):
    """A run, and who is suspect in it."""

    run: RunData
    report: SuspectReport


def suspects_section(data: ReportData) -> Section | None:
    """Each client as a point, with the honest bulk; None if no run has evidence."""
    judged = {series.name: judged_runs(series) for series in data.series}
    if not any(judged.values()):
        return None
    panels = [_panel(series, judged[series.name]) for series in data.series]
    drawn = _same_scale([panel for panel in panels if panel is not None])
    charts = []
    if drawn:
        charts = [Chart("suspects", "Who lies?", _explanation(drawn), drawn[:MAX_PANELS])]
    tables = [_overview(data, judged), _suspects_table(data, judged)]
    return Section("suspects", "Who lies?", "Suspects", _text(judged), charts, tables)


def judged_runs(series: Series) -> list[Judged]:
    """The runs of a series that have evidence."""
    return [Judged(run, run.suspects) for run in series.runs if run.suspects is not None]


def _text(judged: dict[str, list[Judged]]) -> list[str]:
    reports = [each.report for members in judged.values() for each in members]
    rates = ", ".join(percent(rate) for rate in sorted({report.fdr for report in reports}))
    text = [
        "A client is suspect if its updates point elsewhere than those of the others, or if it "
        f"sends the same updates as others. The rate of false discoveries is {rates}. "
        "`fedro suspects` shows every client of a run."
    ]
    reasons = sorted({report.reason for report in reports if report.reason is not None})
    if reasons:
        text.append(f"Some directions could not be judged: {'; '.join(reasons)}.")
    return text


def _explanation(panels: Sequence[Panel]) -> str:
    known = any(trace.name.startswith("Byz") for panel in panels for trace in panel.traces)
    shown = f" Only the first {MAX_PANELS} series are drawn." if len(panels) > MAX_PANELS else ""
    truth = " The colors show who is Byzantine, which only a simulation knows." if known else ""
    return (
        "Each point is a client of one run. Its slope says how far its updates follow what the "
        "clients agree on: about 1 for most, 0 for noise, negative for clients that work against "
        f"the others. The band is the honest bulk: the median ± {BULK:g} scales. Crosses are "
        f"suspects; those inside the band sent copies.{truth}{shown}"
    )


def _panel(series: Series, members: Sequence[Judged]) -> Panel | None:
    """The clients of a series; None if nobody could be judged and nobody is suspect."""
    clients = [
        (each, client)
        for each in members
        if each.report.enough or each.report.suspects
        for client in each.report.clients
        if client.telling[0] is not None
    ]
    if not clients:
        return None
    traces = _band(members, max(client.draws for _, client in clients))
    for name, color, crosses, byzantine, flagged in KINDS:
        chosen = [
            (each, client)
            for each, client in clients
            if (client.byzantine, client.flagged) == (byzantine, flagged)
        ]
        if chosen:
            x = [float(client.draws) for _, client in chosen]
            y = [client.telling[0] for _, client in chosen]
            text = [_hover(each.run, client) for each, client in chosen]
            traces.append(Trace(name, x, y, "points", color, text=text, crosses=crosses))
    x_axis = Axis("updates of the client", integers=True, from_zero=True)
    return Panel(f"{series.name}: {_verdict(members)}", traces, x_axis, Axis("slope"))


def _same_scale(panels: Sequence[Panel]) -> list[Panel]:
    """The panels with one range of slopes, so that they can be compared."""
    slopes = [0.0, 1.0]
    for trace in (trace for panel in panels for trace in panel.traces):
        values = [*trace.y, *(trace.low or ()), *(trace.high or ())]
        slopes += [value for value in values if isinstance(value, float)]
    axis = Axis("slope", range=(min(slopes), max(slopes)))
    return [replace(panel, y=axis) for panel in panels]


def _band(members: Sequence[Judged], last: int) -> list[Trace]:
    """The honest bulk, averaged over the runs."""
    bulks = [
        (each.report.median, each.report.scale)
        for each in members
        if each.report.enough and each.report.median is not None and each.report.scale is not None
    ]
    if not bulks:
        return []
    median, scale = (sum(values) / len(values) for values in zip(*bulks, strict=True))
    low, high = ([median + side * BULK * scale] * 2 for side in (-1, 1))
    return [Trace("honest bulk", [0.0, float(last)], [median] * 2, color=INK, low=low, high=high)]


def _hover(run: RunData, client: ClientEvidence) -> str:
    node = "" if client.node is None else f" (node {client.node})"
    slope, z = client.telling
    parts = [
        f"client {client.client}{node}, seed {run.seed}",
        counted(client.draws, "round"),
        "" if slope is None else f"slope {slope:.2f}",
        "" if z is None else f"z {z:+.1f}",
        f"copies in {client.copies:.0%}" if client.copies else "",
        f"suspect for {' and '.join(client.why)} since round {client.since}"
        if client.flagged
        else "",
    ]
    return ", ".join(part for part in parts if part)


def _verdict(members: Sequence[Judged]) -> str:
    """How many are suspect; in simulations, how many of them are Byzantine."""
    suspects = sum(len(each.report.suspects) for each in members)
    truth = _truth(members)
    if truth is None:
        return counted(suspects, "suspect")
    hits, byzantine = truth
    if not byzantine:
        return f"{counted(suspects, 'suspect')}, nobody Byzantine"
    return f"precision {_share(hits, suspects)}, recall {_share(hits, byzantine)}"


def _truth(members: Iterable[Judged]) -> tuple[int, int] | None:
    """How many Byzantine clients are suspect, and how many were drawn; None if unknown."""
    hits = total = 0
    for each in members:
        byzantine = each.report.byzantine
        if byzantine is None:
            return None
        hits += len(set(byzantine) & set(each.report.suspects))
        total += len(byzantine)
    return hits, total


def _share(part: int, whole: int) -> str:
    return "–" if not whole else f"{part / whole:.0%}"


def _overview(data: ReportData, judged: dict[str, list[Judged]]) -> TextTable:
    """A line for each series with evidence."""
    header = ["series", "runs", "suspects", "at least Byzantine"]
    known = all(_truth(members) is not None for members in judged.values())
    if known:
        header += ["Byzantine, drawn", "Byzantine suspects", "precision", "recall"]
    rows = []
    for series in data.series:
        members = judged[series.name]
        if not members:
            continue
        suspects = sum(len(each.report.suspects) for each in members)
        least = sorted({each.report.at_least for each in members})
        span = str(least[0]) if len(least) == 1 else f"{least[0]}–{least[-1]}"
        row = [series.name, str(len(members)), str(suspects), span]
        truth = _truth(members)
        if known and truth is not None:
            hits, byzantine = truth
            row += [str(byzantine), str(hits), _share(hits, suspects), _share(hits, byzantine)]
        rows.append(row)
    note = "Numbers are sums over seeds. At least Byzantine: in one run, with 95% confidence."
    return TextTable(header, rows, note=note)


def _suspects_table(data: ReportData, judged: dict[str, list[Judged]]) -> TextTable:
    """All suspects, with the reason."""
    header = ["series", "seed", "client", "rounds", "slope", "z", "copies", "suspect for", "since"]
    rows = [
        [series.name, str(each.run.seed), *_cells(client)]
        for series in data.series
        for each in judged[series.name]
        for client in each.report.clients
        if client.flagged
    ]
    left_out = len(rows) - MAX_ROWS
    note = f"{left_out} more suspects are in suspects.csv." if left_out > 0 else ""
    return TextTable(header, rows[:MAX_ROWS], title="All suspects", note=note)


def _cells(client: ClientEvidence) -> list[str]:
    slope, z = client.telling
    name = str(client.client) if client.node is None else f"{client.client}, node {client.node}"
    return [
        name,
        str(client.draws),
        "–" if slope is None else f"{slope:.2f}",
        "–" if z is None else f"{z:+.1f}",
        f"{client.copies:.0%}",
        ", ".join(client.why),
        str(client.since),
    ]
