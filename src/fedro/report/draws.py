"""Bad clients in each round against what was tolerated, and who was invited how often."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedro.common.text import percent
from fedro.planning.tails import hypergeometric_log_cdf
from fedro.report.chart import INK, Axis, Chart, Kind, Mark, Panel, Section, Table
from fedro.report.progress import round_axis, short
from fedro.report.runs import Run
from fedro.report.series import Study, mean

HONEST, BAD, MANY = 0, 1, 400  # colors; from so many clients on, an outline instead of bars


@dataclass(frozen=True)
class Draws:
    """Runs that draw alike: who is invited follows from these numbers and the seed alone."""

    clients: int | None
    byzantine: int
    sampled: int
    tolerated: int
    rounds: int
    runs: Sequence[Run]  # one for each seed

    @property
    def name(self) -> str:
        """In a few words."""
        everyone = "an unknown number of" if self.clients is None else str(self.clients)
        return f"{self.byzantine} of {everyone} clients bad, {self.sampled} sampled"

    @property
    def log_safe(self) -> float | None:
        """ln P[|B_t| ≤ b̂] of one round."""
        if self.clients is None:
            return None
        return hypergeometric_log_cdf(self.tolerated, self.clients, self.byzantine, self.sampled)

    @property
    def safe(self) -> float | None:
        """The exact probability that no round holds more bad clients than tolerated."""
        one = self.log_safe
        return None if one is None else math.exp(self.rounds * one)


def draws_of(study: Study) -> list[Draws]:
    """The ways of drawing in a study, with the longest run for each seed."""
    groups: dict[tuple[int | None, int, int, int, int], dict[int, Run]] = {}
    for run in study.runs:
        key = (run.clients, run.byzantine, run.sampled, run.tolerated, run.rounds)
        seeds = groups.setdefault(key, {})
        if run.seed not in seeds or len(run.lines) > len(seeds[run.seed].lines):
            seeds[run.seed] = run
    return [Draws(*key, list(seeds.values())) for key, seeds in groups.items()]


def overruns(study: Study) -> Section:
    """|B_t| against b̂."""
    found = [draws for draws in draws_of(study) if draws.byzantine]
    title = "Bad clients in each round"
    if found and not any(run.known for draws in found for run in draws.runs):
        text = ["These runs were on real clients: nobody knows who was bad."]
        return Section("bad", title, "Bad clients", text, tables=[_draws_table(found)])
    if not found:
        return Section("bad", title, "Bad clients", ["No client is bad in any of these runs."])
    chart = Chart(
        "bad-clients",
        title,
        "|B_t|, the bad clients among those sampled in round t, against b̂, the number that the "
        "rule tolerates. It follows from the seed, so runs of one seed share it, whatever their "
        "rule and attack.",
        [_draws_panel(d, round_axis(study)) for d in found if any(run.known for run in d.runs)],
    )
    return Section("bad", title, "Bad clients", charts=[chart], tables=[_draws_table(found)])


def _draws_table(found: Sequence[Draws]) -> Table:
    header = (
        *("clients n", "bad b", "sampled n̂", "tolerated b̂", "rounds T"),
        *("P[|B_t| ≤ b̂ in all T rounds]", "rounds over b̂, expected", "rounds over b̂, seen"),
        "seeds with none over b̂",
    )
    note = "The probability is exact (hypergeometric), for one run of T rounds."
    return Table(header, [_draws_row(draws) for draws in found], note=note)


def _draws_panel(draws: Draws, x_axis: Axis) -> Panel:
    points = [
        (line.round, len(line.byzantine))
        for run in draws.runs
        for line in run.lines
        if line.byzantine is not None
    ]
    last = max((round for round, _ in points), default=0)
    marks = []
    for name, color, over in (("within b̂", HONEST, False), ("more than b̂", BAD, True)):
        chosen = sorted({p for p in points if (p[1] > draws.tolerated) == over})
        if chosen:
            x, y = [p[0] for p in chosen], [float(p[1]) for p in chosen]
            marks.append(Mark(name, x, y, "points", color))
    level = [float(draws.tolerated)] * 2
    marks.append(Mark("b̂, tolerated", [0, last], level, color=INK, dash=1))
    most = max([float(draws.tolerated), *(float(bad) for _, bad in points)])
    y_axis = Axis("bad clients |B_t|", whole=True, range=(0, max(1.0, most)))
    safe = "" if draws.safe is None else f"; all within b̂ with probability {percent(draws.safe)}"
    return Panel(draws.name + safe, marks, x_axis, y_axis)


def _draws_row(draws: Draws) -> list[str]:
    rounds = sum(len(run.lines) for run in draws.runs)
    one, safe = draws.log_safe, draws.safe
    unknown = "not known before the run is complete"
    return [
        "–" if draws.clients is None else str(draws.clients),
        str(draws.byzantine),
        str(draws.sampled),
        str(draws.tolerated),
        str(draws.rounds),
        unknown if safe is None else percent(safe),
        "–" if one is None else f"{short(abs(math.expm1(one)) * rounds)} of {rounds}",
        *_seen(draws, rounds),
    ]


def _seen(draws: Draws, rounds: int) -> tuple[str, str]:
    over = [run.overrun for run in draws.runs if run.overrun is not None]
    if len(over) < len(draws.runs):
        return "not known", "not known"
    return f"{sum(over)} of {rounds}", f"{over.count(0)} of {len(over)}"


def clients(study: Study) -> Section:
    """How often each client was invited, and how much it has to train on."""
    chart = Chart(
        "invitations",
        "Invitations of each client",
        "How often each client was sampled, over all seeds; the line is what to expect.",
        [_invitations(draws) for draws in draws_of(study)],
    )
    charts, text = [chart], []
    if panels := _examples(study):
        told = "Training examples that each client holds, mean over seeds."
        charts.append(Chart("examples", "Examples of each client", told, panels))
    else:
        text.append(
            "How many examples clients hold is not known here: a run tells it once it is complete."
        )
    return Section("clients", "Clients: invitations and examples", "Invitations", text, charts)


def _invitations(draws: Draws) -> Panel:
    counts: dict[bool, dict[int, int]] = {False: {}, True: {}}
    for run in draws.runs:
        for line in run.lines:
            bad = set(line.byzantine or ())
            for client in line.sampled:
                share = counts[client in bad]
                share[client] = share.get(client, 0) + 1
    known = [*counts[False], *counts[True]]
    clients = draws.clients or max(known, default=-1) + 1
    each = range(clients)
    honest = "while honest" if all(run.known for run in draws.runs) else "invited"
    marks = [
        Mark(name, each, [float(counts[bad].get(i, 0)) for i in each], _kind(clients), color)
        for bad, name, color in ((False, honest, HONEST), (True, "while bad", BAD))
        if counts[bad] or not bad
    ]
    rounds = sum(len(run.lines) for run in draws.runs)
    expected = rounds * draws.sampled / max(1, clients)
    marks.append(Mark("expected", [0, max(0, clients - 1)], [expected] * 2, color=INK, dash=1))
    y = Axis("times invited", zero=True)
    return Panel(draws.name, marks, Axis("client", whole=True), y)


def _kind(clients: int) -> Kind:
    return "bars" if clients <= MANY else "area"


def _examples(study: Study) -> list[Panel]:
    """A panel for each way of sharing data out."""
    groups: dict[tuple[str, int], dict[int, list[int]]] = {}
    for run in study.runs:
        if run.examples:
            partition = run.config["partition"]
            name = f"{run.config['dataset']}" + (f", {partition}" if partition else "")
            groups.setdefault((name, len(run.examples)), {})[run.seed] = run.examples
    panels = []
    for (name, count), seeds in groups.items():
        y = [mean([float(sizes[client]) for sizes in seeds.values()]) for client in range(count)]
        mark = Mark("examples", range(count), y, _kind(count), HONEST)
        y_axis = Axis("training examples", zero=True)
        panels.append(Panel(name, [mark], Axis("client", whole=True), y_axis))
    return panels
