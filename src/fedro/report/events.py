"""What happened in the rounds: unused replies, void rounds, takeovers, chosen attacks, time."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from fedro.common.text import counted
from fedro.report.chart import Axis, Chart, Panel, Section, TextTable, Trace
from fedro.report.curves import rounds_axis
from fedro.report.results import format_ranges
from fedro.report.run_data import RunData
from fedro.report.series import MAX_PANELS, ReportData, Series, mean

MAX_ROWS, MAX_REASONS = 400, 3  # in a table of the page; in a cell
PHASES = ("train", "attack", "aggregate", "measure", "evaluate")
REPLY_COLORS = {"rejected": 1, "missing": 0}
SIMULATED_TIME = "All clients, the attackers and the server shared one machine."
DEPLOYED_TIME = "Most of this time the server waits for replies."


class UnusedReply(NamedTuple):
    """A reply that the server could not use."""

    round: int
    client: int
    byzantine: bool | None  # None in a deployed run, where it is unknown
    kind: str  # "rejected" or "missing"
    reason: str


RepliesBySeries = dict[str, list[tuple[RunData, UnusedReply]]]


def unused_replies(run: RunData) -> Iterator[UnusedReply]:
    """All rejected and missing replies of a run, in the order of rounds."""
    for round_ in run.rounds:
        byzantine = None if round_.byzantine is None else set(round_.byzantine)
        for kind in REPLY_COLORS:
            for client, reason in getattr(round_, kind).items():
                known = None if byzantine is None else client in byzantine
                yield UnusedReply(round_.round, client, known, kind, reason)


def replies_section(data: ReportData) -> Section:
    """Rejected and missing replies by reason and by client; void rounds; takeovers."""
    replies: RepliesBySeries = {
        series.name: [(run, reply) for run in series.runs for reply in unused_replies(run)]
        for series in data.series
    }
    seen = {reply.kind for pairs in replies.values() for _, reply in pairs}
    text = [f"No reply was {kind}." for kind in REPLY_COLORS if kind not in seen]
    charts, tables = [], []
    if any(replies.values()):
        charts.append(_replies_chart(data, replies))
        tables += [_by_reason(replies), _by_client(replies)]
    problems = [
        [series.name, str(run.seed), run.problem]
        for series in data.series
        for run in series.runs
        if run.problem is not None
    ]
    if problems:
        tables.append(TextTable(("series", "seed", "why the run came to nothing"), problems))
    if void := _void_rows(data):
        tables.append(TextTable(("series", "seed", "void rounds", "which", "why"), void))
    else:
        text.append("No round was void.")
    if diverged := _diverged_rows(data):
        header = ("series", "seed", "rounds with losses that are not finite", "which", "clients")
        tables.append(TextTable(header, diverged))
    if takeovers := _takeover_rows(data):
        tables.append(TextTable(("series", "seed", "takeovers", "in rounds", "why"), takeovers))
    else:
        text.append("The attackers took over the model in no round.")
    return Section(
        "replies", "Unused replies, void rounds and takeovers", "Replies", text, charts, tables
    )


def _replies_chart(data: ReportData, replies: RepliesBySeries) -> Chart:
    panels = []
    for name, pairs in replies.items():
        traces = []
        for kind, color in REPLY_COLORS.items():
            chosen = [(run, reply) for run, reply in pairs if reply.kind == kind]
            if chosen:
                x, y = [r.round for _, r in chosen], [float(r.client) for _, r in chosen]
                texts = [_hover_text(run, reply) for run, reply in chosen]
                traces.append(Trace(kind, x, y, "points", color, text=texts))
        if traces:
            panels.append(Panel(name, traces, rounds_axis(data), Axis("client", integers=True)))
    text = (
        "Each point is a reply that the server did not use. It reduces the number of updates, "
        "never the tolerance b̂."
    )
    return Chart(
        "replies", "Rejected and missing replies", text + _cut_note(panels), panels[:MAX_PANELS]
    )


def _hover_text(run: RunData, reply: UnusedReply) -> str:
    client = f"{_honesty(reply)} client".strip()
    return f"{reply.kind}: {reply.reason} ({client} {reply.client}, seed {run.seed})"


def _honesty(reply: UnusedReply) -> str:
    return "" if reply.byzantine is None else "Byzantine" if reply.byzantine else "honest"


def _cut_note(panels: list[Panel]) -> str:
    if len(panels) <= MAX_PANELS:
        return ""
    return f" Shown are the first {MAX_PANELS} of {len(panels)} series; the tables have all."


def _by_reason(replies: RepliesBySeries) -> TextTable:
    rows = []
    for name, pairs in replies.items():
        groups: dict[tuple[str, str], list[UnusedReply]] = {}
        for _, reply in pairs:
            groups.setdefault((reply.kind, reply.reason), []).append(reply)
        for (kind, reason), members in groups.items():
            byzantine = sum(reply.byzantine is True for reply in members)
            honest = sum(reply.byzantine is False for reply in members)
            clients = len({reply.client for reply in members})
            counts = (len(members), byzantine, honest, clients)
            rows.append([name, kind, reason, *map(str, counts)])
    header = (
        *("series", "", "reason", "replies"),
        *("of Byzantine clients", "of honest clients", "clients"),
    )
    return TextTable(header, rows)


def _by_client(replies: RepliesBySeries) -> TextTable:
    groups: dict[tuple[str, int, int, str, str, str], list[int]] = {}
    for name, pairs in replies.items():
        for run, reply in pairs:
            key = (name, run.seed, reply.client, _honesty(reply), reply.kind, reply.reason)
            groups.setdefault(key, []).append(reply.round)
    rows = [
        [*map(str, key), str(len(rounds)), format_ranges(rounds)]
        for key, rounds in sorted(groups.items())
    ]
    note = ""
    if len(rows) > MAX_ROWS:
        note = f"The first {MAX_ROWS} of {len(rows)} lines; unused_replies.csv (--csv) has all."
    header = ("series", "seed", "client", "", "", "reason", "replies", "rounds")
    return TextTable(header, rows[:MAX_ROWS], "By client, with reasons and rounds", note)


def _void_rows(data: ReportData) -> list[list[str]]:
    rows = []
    for series in data.series:
        for run in series.runs:
            reasons: dict[str, list[int]] = {}
            for round_ in run.rounds:
                if round_.void is not None:
                    reasons.setdefault(round_.void, []).append(round_.round)
            if reasons:
                which = [number for rounds in reasons.values() for number in rounds]
                frequent = sorted(reasons, key=lambda reason: -len(reasons[reason]))
                texts = [f"{why} ({len(reasons[why])}×)" for why in frequent[:MAX_REASONS]]
                texts += ["…"] * (len(reasons) > MAX_REASONS)
                count = f"{len(which)} of {len(run.rounds)}"
                rows.append(
                    [series.name, str(run.seed), count, format_ranges(which), "; ".join(texts)]
                )
    return rows[:MAX_ROWS]


def _diverged_rows(data: ReportData) -> list[list[str]]:
    rows = []
    for series in data.series:
        for run in series.runs:
            rounds = [round_ for round_ in run.rounds if round_.diverged]
            if rounds:
                count = f"{len(rounds)} of {len(run.rounds)}"
                which = format_ranges([round_.round for round_ in rounds])
                most = max(round_.diverged for round_ in rounds)
                clients = f"up to {counted(most, 'honest client')} in a round"
                rows.append([series.name, str(run.seed), count, which, clients])
    return rows[:MAX_ROWS]


def _takeover_rows(data: ReportData) -> list[list[str]]:
    rows = []
    for series in data.series:
        for run in series.runs:
            which = [round_.round for round_ in run.rounds if round_.takeover]
            why = "more Byzantine clients than tolerated, and the attack replaced the model"
            if which:
                count = f"{len(which)} of {len(run.rounds)}"
                rows.append([series.name, str(run.seed), count, format_ranges(which), why])
    return rows[:MAX_ROWS]


def attack_choices_section(data: ReportData) -> Section | None:
    """Which attack was chosen in each round, for attacks that choose among others."""
    panels, rows = [], []
    for series in data.series:
        chosen = [(run, round_) for run, round_ in series.rounds if round_.attack is not None]
        counts = Counter(str(round_.attack) for _, round_ in chosen)
        if not counts:
            continue
        names = [name for name, _ in counts.most_common()]
        x, y = [r.round for _, r in chosen], [str(r.attack) for _, r in chosen]
        texts = [f"{round_.attack} (seed {run.seed})" for run, round_ in chosen]
        traces = [Trace("chosen", x, y, "points", 0, text=texts)]
        panels.append(Panel(series.name, traces, rounds_axis(data), Axis("", names=names)))
        rows += [
            [series.name, name, f"{count} of {len(chosen)}", f"{100 * count / len(chosen):.0f}%"]
            for name, count in counts.most_common()
        ]
    if not panels:
        return None
    title = "Attacks chosen by “worst”"
    text = (
        "In each round the attackers tried several attacks and sent the one that moves the "
        "aggregate furthest."
    )
    chart = Chart("choices", title, text + _cut_note(panels), panels[:MAX_PANELS])
    table = TextTable(("series", "attack", "rounds", "share"), rows)
    return Section("choices", title, "Chosen attacks", charts=[chart], tables=[table])


def time_section(data: ReportData) -> Section | None:
    """How long each phase of a round takes."""
    spent = {series.name: _mean_seconds(series) for series in data.series}
    recorded = {phase for seconds in spent.values() for phase in seconds}
    phases = [*PHASES, *sorted(recorded - {*PHASES})]
    names = [name for name, seconds in spent.items() if seconds]
    if not names:
        return None
    slow = max(sum(seconds.values()) for seconds in spent.values()) >= 1
    unit, scale = ("seconds", 1) if slow else ("milliseconds", 1000)
    traces = [
        Trace(phase, [scale * spent[name].get(phase, 0.0) for name in names], names, "bars", number)
        for number, phase in enumerate(phases)
    ]
    chart = Chart(
        "time",
        "Time per round",
        "Mean over rounds and seeds, without the first round of each run, which warms up. "
        + (DEPLOYED_TIME if data.deployed else SIMULATED_TIME),
        [Panel("", traces, Axis(f"{unit} per round", from_zero=True), Axis("", names=names))],
    )
    rows = []
    for name in names:
        values = [spent[name].get(phase, 0.0) for phase in phases]
        rows.append([name, *(f"{1000 * value:.3g} ms" for value in (*values, sum(values)))])
    table = TextTable(("series", *phases, "total"), rows, "As numbers")
    return Section("time", chart.title, "Time", charts=[chart], tables=[table])


def _mean_seconds(series: Series) -> dict[str, float]:
    rounds = [round_ for run in series.runs for round_ in run.rounds[1:] or run.rounds]
    phases = {phase for round_ in rounds for phase in round_.seconds}
    return {phase: mean([round_.seconds.get(phase, 0.0) for round_ in rounds]) for phase in phases}
