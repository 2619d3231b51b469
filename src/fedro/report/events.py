"""What went wrong, or was done about it: refused replies, void rounds, takeovers, choices; time."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from fedro.report.chart import Axis, Chart, Mark, Panel, Section, Table
from fedro.report.comparison import ranges
from fedro.report.progress import round_axis
from fedro.report.runs import Run
from fedro.report.series import MOST_PANELS, Series, Study, mean

MOST_ROWS, MOST_REASONS = 400, 3  # on the page
PARTS = ("train", "attack", "aggregate", "measure", "evaluate")
KINDS = {"rejected": 1, "missing": 0}  # their colors
SIMULATING = "All clients, the attackers and the server share one machine here."
WAITING = "Most of it the server waits for replies."


class Event(NamedTuple):
    """A reply that was not used."""

    round: int
    client: int
    bad: bool | None  # None: nobody knows
    kind: str  # rejected or missing
    reason: str


def events(run: Run) -> Iterator[Event]:
    """All replies of a run that were not used, in order."""
    for line in run.lines:
        bad = None if line.byzantine is None else set(line.byzantine)
        for kind in KINDS:
            for client, reason in getattr(line, kind).items():
                known = None if bad is None else client in bad
                yield Event(line.round, client, known, kind, reason)


def ledger(study: Study) -> Section:
    """Rejected and missing replies by reason and by client; void rounds; takeovers."""
    found = {
        s.name: [(run, event) for run in s.runs for event in events(run)] for s in study.series
    }
    seen = {event.kind for pairs in found.values() for _, event in pairs}
    text = [f"No reply was {kind}." for kind in KINDS if kind not in seen]
    charts, tables = [], []
    if any(found.values()):
        charts.append(_ledger_chart(study, found))
        tables += [_by_reason(found), _by_client(found)]
    for word, rows in (("void", _voids(study)), ("taken over", _takeovers(study))):
        if rows:
            header = ("series", "seed", f"rounds {word}", "which", "why")
            tables.append(Table(header, rows))
        else:
            text.append(f"No round was {word}.")
    return Section(
        "ledger", "Replies that were not used, and lost rounds", "Ledger", text, charts, tables
    )


def _ledger_chart(study: Study, found: dict[str, list[tuple[Run, Event]]]) -> Chart:
    panels = []
    for name, pairs in found.items():
        marks = []
        for kind, color in KINDS.items():
            chosen = [(run, event) for run, event in pairs if event.kind == kind]
            if chosen:
                x, y = [e.round for _, e in chosen], [float(e.client) for _, e in chosen]
                words = [_told(run, event) for run, event in chosen]
                marks.append(Mark(kind, x, y, "points", color, text=words))
        if marks:
            panels.append(Panel(name, marks, round_axis(study), Axis("client", whole=True)))
    text = "Each point is a reply that was not used. It lowers the number of replies, never b̂."
    return Chart(
        "ledger", "Rejected and missing replies", text + _cut(panels), panels[:MOST_PANELS]
    )


def _told(run: Run, event: Event) -> str:
    who = f"{_who(event)} client".strip()
    return f"{event.kind}: {event.reason} ({who} {event.client}, seed {run.seed})"


def _who(event: Event) -> str:
    return "" if event.bad is None else "bad" if event.bad else "honest"


def _cut(panels: list[Panel]) -> str:
    if len(panels) <= MOST_PANELS:
        return ""
    return f" The first {MOST_PANELS} of {len(panels)} series; the tables below have all."


def _by_reason(found: dict[str, list[tuple[Run, Event]]]) -> Table:
    rows = []
    for name, pairs in found.items():
        groups: dict[tuple[str, str], list[Event]] = {}
        for _, event in pairs:
            groups.setdefault((event.kind, event.reason), []).append(event)
        for (kind, reason), members in groups.items():
            of_bad = sum(event.bad is True for event in members)
            of_honest = sum(event.bad is False for event in members)
            clients = len({event.client for event in members})
            counts = (len(members), of_bad, of_honest, clients)
            rows.append([name, kind, reason, *map(str, counts)])
    header = ("series", "", "reason", "replies", "of bad clients", "of honest clients", "clients")
    return Table(header, rows)


def _by_client(found: dict[str, list[tuple[Run, Event]]]) -> Table:
    groups: dict[tuple[str, int, int, str, str, str], list[int]] = {}
    for name, pairs in found.items():
        for run, event in pairs:
            key = (name, run.seed, event.client, _who(event), event.kind, event.reason)
            groups.setdefault(key, []).append(event.round)
    rows = [
        [*map(str, key), str(len(rounds)), ranges(rounds)] for key, rounds in sorted(groups.items())
    ]
    note = ""
    if len(rows) > MOST_ROWS:
        note = f"The first {MOST_ROWS} of {len(rows)} lines; ledger.csv (--csv) has all."
    header = ("series", "seed", "client", "", "", "reason", "replies", "rounds")
    return Table(header, rows[:MOST_ROWS], "By client: who, why and in which rounds", note)


def _voids(study: Study) -> list[list[str]]:
    rows = []
    for series in study.series:
        for run in series.runs:
            reasons: dict[str, list[int]] = {}
            for line in run.lines:
                if line.void is not None:
                    reasons.setdefault(line.void, []).append(line.round)
            if reasons:
                which = [number for rounds in reasons.values() for number in rounds]
                ordered = sorted(reasons, key=lambda why: -len(reasons[why]))
                told = [f"{why} ({len(reasons[why])}×)" for why in ordered[:MOST_REASONS]]
                told += ["…"] * (len(reasons) > MOST_REASONS)
                count = f"{len(which)} of {len(run.lines)}"
                rows.append([series.name, str(run.seed), count, ranges(which), "; ".join(told)])
    return rows[:MOST_ROWS]


def _takeovers(study: Study) -> list[list[str]]:
    rows = []
    for series in study.series:
        for run in series.runs:
            which = [line.round for line in run.lines if line.takeover]
            why = "more bad clients than tolerated, and the attack seized the model"
            if which:
                count = f"{len(which)} of {len(run.lines)}"
                rows.append([series.name, str(run.seed), count, ranges(which), why])
    return rows[:MOST_ROWS]


def choices(study: Study) -> Section | None:
    """Which attack was chosen, where the attackers choose."""
    panels, rows = [], []
    for series in study.series:
        chosen = [(run, line) for run, line in series.lines if line.attack is not None]
        counts = Counter(str(line.attack) for _, line in chosen)
        if not counts:
            continue
        names = [name for name, _ in counts.most_common()]
        x, y = [line.round for _, line in chosen], [str(line.attack) for _, line in chosen]
        words = [f"{line.attack} (seed {run.seed})" for run, line in chosen]
        marks = [Mark("chosen", x, y, "points", 0, text=words)]
        panels.append(Panel(series.name, marks, round_axis(study), Axis("", names=names)))
        rows += [
            [series.name, name, f"{count} of {len(chosen)}", f"{100 * count / len(chosen):.0f}%"]
            for name, count in counts.most_common()
        ]
    if not panels:
        return None
    title = "Which attack “worst” chose"
    text = (
        "The attackers tried several in each round and sent the one that moves the rule furthest."
    )
    chart = Chart("choices", title, text + _cut(panels), panels[:MOST_PANELS])
    table = Table(("series", "attack", "rounds", "share"), rows)
    return Section("choices", title, "Choices", charts=[chart], tables=[table])


def time(study: Study) -> Section | None:
    """Where a round's time goes."""
    spent = {series.name: _seconds(series) for series in study.series}
    parts = [*PARTS, *sorted({part for found in spent.values() for part in found} - {*PARTS})]
    names = [name for name, found in spent.items() if found]
    if not names:
        return None
    slow = max(sum(found.values()) for found in spent.values()) >= 1
    unit, scale = ("seconds", 1) if slow else ("milliseconds", 1000)
    marks = [
        Mark(part, [scale * spent[name].get(part, 0.0) for name in names], names, "bars", number)
        for number, part in enumerate(parts)
    ]
    chart = Chart(
        "time",
        "Time per round",
        "Mean over rounds and seeds, without each run's first round, which warms up. "
        + (WAITING if study.deployed else SIMULATING),
        [Panel("", marks, Axis(f"{unit} a round", zero=True), Axis("", names=names))],
    )
    rows = []
    for name in names:
        values = [spent[name].get(part, 0.0) for part in parts]
        rows.append([name, *(f"{1000 * value:.3g} ms" for value in (*values, sum(values)))])
    table = Table(("series", *parts, "in all"), rows, "As numbers")
    return Section("time", chart.title, "Time", charts=[chart], tables=[table])


def _seconds(series: Series) -> dict[str, float]:
    lines = [line for run in series.runs for line in run.lines[1:] or run.lines]
    parts = {part for line in lines for part in line.seconds}
    return {part: mean([line.seconds.get(part, 0.0) for line in lines]) for part in parts}
