"""Sections on sampling: Byzantine clients in each round, and how often each client was invited."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedro.common.text import percent
from fedro.planning.tails import hypergeometric_log_cdf
from fedro.report.chart import INK, Axis, Chart, Panel, Section, TextTable, Trace, TraceKind
from fedro.report.curves import rounds_axis, three_digits
from fedro.report.run_data import RunData
from fedro.report.series import ReportData, mean

HONEST_COLOR, BYZANTINE_COLOR = 0, 1
MAX_BARS = 400  # with more clients, the outline of the bars is drawn instead


@dataclass(frozen=True)
class SamplingGroup:
    """Runs with the same sampling: with equal seeds they invite the same clients."""

    clients: int | None
    byzantine: int
    sampled: int
    tolerated: int
    rounds: int
    runs: Sequence[RunData]  # one for each seed

    @property
    def name(self) -> str:
        """The sizes in words."""
        everyone = "an unknown number of" if self.clients is None else str(self.clients)
        return f"{self.byzantine} of {everyone} clients Byzantine, {self.sampled} sampled"

    @property
    def log_safe(self) -> float | None:
        """ln P[|B_t| ≤ b̂] of one round."""
        if self.clients is None:
            return None
        return hypergeometric_log_cdf(self.tolerated, self.clients, self.byzantine, self.sampled)

    @property
    def safe(self) -> float | None:
        """The exact probability that no round is an overrun."""
        one = self.log_safe
        return None if one is None else math.exp(self.rounds * one)


def sampling_groups(data: ReportData) -> list[SamplingGroup]:
    """The runs grouped by their sampling, with the longest run of each seed."""
    groups: dict[tuple[int | None, int, int, int, int], dict[int, RunData]] = {}
    for run in data.runs:
        key = (run.clients, run.byzantine, run.sampled, run.tolerated, run.planned_rounds)
        seeds = groups.setdefault(key, {})
        if run.seed not in seeds or len(run.rounds) > len(seeds[run.seed].rounds):
            seeds[run.seed] = run
    return [SamplingGroup(*key, list(seeds.values())) for key, seeds in groups.items()]


def byzantine_section(data: ReportData) -> Section:
    """Byzantine clients among the sampled ones against the number tolerated."""
    groups = [group for group in sampling_groups(data) if group.byzantine]
    key, title, link = "byzantine", "Byzantine clients in each round", "Byzantine clients"
    if not groups:
        return Section(key, title, link, ["These runs have no Byzantine clients."])
    if not any(run.byzantine_known for group in groups for run in group.runs):
        text = ["These runs used real clients, so it is unknown which of them were Byzantine."]
        return Section(key, title, link, text, tables=[_sampling_table(groups)])
    chart = Chart(
        "byzantine-clients",
        title,
        "|B_t| is the number of Byzantine clients among those sampled in round t, and b̂ the "
        "number that the rule tolerates. Sampling depends on the seed only, so runs with the same "
        "seed share it, whatever their rule and attack.",
        [
            _byzantine_panel(group, rounds_axis(data))
            for group in groups
            if any(run.byzantine_known for run in group.runs)
        ],
    )
    return Section(key, title, link, charts=[chart], tables=[_sampling_table(groups)])


def _sampling_table(groups: Sequence[SamplingGroup]) -> TextTable:
    header = (
        *("clients n", "Byzantine b", "sampled n̂", "tolerated b̂", "rounds T"),
        *("P[|B_t| ≤ b̂ in all T rounds]", "overruns, expected", "overruns, seen"),
        "seeds without an overrun",
    )
    note = (
        "An overrun is a round with |B_t| > b̂. The probability is exact (hypergeometric), for one "
        "run of T rounds."
    )
    return TextTable(header, [_sampling_row(group) for group in groups], note=note)


def _byzantine_panel(group: SamplingGroup, x_axis: Axis) -> Panel:
    points = [
        (round_.round, len(round_.byzantine))
        for run in group.runs
        for round_ in run.rounds
        if round_.byzantine is not None
    ]
    last = max((number for number, _ in points), default=0)
    traces = []
    for name, color, over in (
        ("at most b̂", HONEST_COLOR, False),
        ("more than b̂", BYZANTINE_COLOR, True),
    ):
        chosen = sorted({p for p in points if (p[1] > group.tolerated) == over})
        if chosen:
            x, y = [p[0] for p in chosen], [float(p[1]) for p in chosen]
            traces.append(Trace(name, x, y, "points", color))
    level = [float(group.tolerated)] * 2
    traces.append(Trace("b̂, tolerated", [0, last], level, color=INK, dash=1))
    largest = max([float(group.tolerated), *(float(count) for _, count in points)])
    y_axis = Axis("Byzantine clients |B_t|", integers=True, range=(0, max(1.0, largest)))
    safe = "" if group.safe is None else f"; no overrun with probability {percent(group.safe)}"
    return Panel(group.name + safe, traces, x_axis, y_axis)


def _sampling_row(group: SamplingGroup) -> list[str]:
    rounds = sum(len(run.rounds) for run in group.runs)
    one, safe = group.log_safe, group.safe
    return [
        "–" if group.clients is None else str(group.clients),
        str(group.byzantine),
        str(group.sampled),
        str(group.tolerated),
        str(group.rounds),
        "unknown until the run is finished" if safe is None else percent(safe),
        "–" if one is None else f"{three_digits(abs(math.expm1(one)) * rounds)} of {rounds}",
        *_overruns_seen(group, rounds),
    ]


def _overruns_seen(group: SamplingGroup, rounds: int) -> tuple[str, str]:
    overruns = [run.overruns for run in group.runs if run.overruns is not None]
    if len(overruns) < len(group.runs):
        return "unknown", "unknown"
    return f"{sum(overruns)} of {rounds}", f"{overruns.count(0)} of {len(overruns)}"


def invitations_section(data: ReportData) -> Section:
    """How often each client was invited, and how many examples it trains on."""
    chart = Chart(
        "invitations",
        "Invitations of each client",
        "How often each client was sampled, over all seeds. The dashed line is the expected "
        "number.",
        [_invitations_panel(group) for group in sampling_groups(data)],
    )
    charts, text = [chart], []
    if panels := _example_panels(data):
        explanation = "Number of training examples that each client holds, averaged over seeds."
        charts.append(Chart("examples", "Examples of each client", explanation, panels))
    else:
        text.append(
            "The number of examples of each client is unknown: a run records it when it finishes."
        )
    return Section("clients", "Clients: invitations and examples", "Invitations", text, charts)


def _invitations_panel(group: SamplingGroup) -> Panel:
    counts: dict[bool, dict[int, int]] = {False: {}, True: {}}
    for run in group.runs:
        for round_ in run.rounds:
            byzantine = set(round_.byzantine or ())
            for client in round_.sampled:
                of_kind = counts[client in byzantine]
                of_kind[client] = of_kind.get(client, 0) + 1
    invited = [*counts[False], *counts[True]]
    clients = group.clients or max(invited, default=-1) + 1
    ids = range(clients)
    honest = "while honest" if all(run.byzantine_known for run in group.runs) else "invited"
    traces = [
        Trace(name, ids, [float(counts[bad].get(i, 0)) for i in ids], _bars_or_area(clients), color)
        for bad, name, color in (
            (False, honest, HONEST_COLOR),
            (True, "while Byzantine", BYZANTINE_COLOR),
        )
        if counts[bad] or not bad
    ]
    rounds = sum(len(run.rounds) for run in group.runs)
    expected = rounds * group.sampled / max(1, clients)
    traces.append(Trace("expected", [0, max(0, clients - 1)], [expected] * 2, color=INK, dash=1))
    y_axis = Axis("times invited", from_zero=True)
    return Panel(group.name, traces, Axis("client", integers=True), y_axis)


def _bars_or_area(clients: int) -> TraceKind:
    return "bars" if clients <= MAX_BARS else "area"


def _example_panels(data: ReportData) -> list[Panel]:
    """A panel for each data set and partition."""
    groups: dict[tuple[str, int], dict[int, list[int]]] = {}
    for run in data.runs:
        if run.examples:
            partition = run.config["partition"]
            name = f"{run.config['dataset']}" + (f", {partition}" if partition else "")
            groups.setdefault((name, len(run.examples)), {})[run.seed] = run.examples
    panels = []
    for (name, count), seeds in groups.items():
        y = [mean([float(sizes[client]) for sizes in seeds.values()]) for client in range(count)]
        trace = Trace("examples", range(count), y, _bars_or_area(count), HONEST_COLOR)
        y_axis = Axis("training examples", from_zero=True)
        panels.append(Panel(name, [trace], Axis("client", integers=True), y_axis))
    return panels
