"""Charts over rounds: accuracy, loss, the clients that fare worst, backdoors, κ."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from fedro.report.chart import Axis, Chart, Mark, Panel, Section, Table, style
from fedro.report.runs import Line
from fedro.report.series import TOLD, Series, Study, Track, track

DOTTED = 2  # how the second of two measures is drawn
LINEAR, APART = 1.5, 4  # decades that a linear axis, and one for all panels, can show
Value = Callable[[Line], float | None]


def round_axis(study: Study) -> Axis:
    """All rounds that there are to be, so that all charts can be compared."""
    last = max(1, *(run.rounds - 1 for run in study.runs))
    return Axis("round (the first is 0)", whole=True, range=(0, last))


def accuracy(study: Study) -> Section | None:
    """Of all honest test examples."""
    chart = over_rounds(
        study,
        "accuracy",
        "Accuracy over rounds",
        "Share of all honest clients' test examples that the model gets right.",
        [("", _score("accuracy"))],
        Axis("accuracy", percent=True),
    )
    return _alone(chart, "Accuracy")


def clients(study: Study) -> Section | None:
    """The mean client, and those that fare worst."""
    chart = over_rounds(
        study,
        "fairness",
        "The mean client" if study.deployed else "The mean client and the worst-off tenth",
        f"{TOLD}. How the worst-off fare is not known."
        if study.deployed
        else "Solid: accuracy of the mean client. Dotted: mean accuracy of the tenth of the "
        "clients that fare worst, because a robust rule can filter minorities out.",
        [("mean client", _score("clients")), ("worst tenth", _score("worst"))],
        Axis("clients' accuracy", percent=True),
    )
    return _alone(chart, "Clients")


def loss(study: Study) -> Section | None:
    """On the honest clients' test data, and in their training."""
    test = over_rounds(
        study,
        "loss",
        "Test loss",
        (TOLD if study.deployed else "Mean over all honest clients' test examples")
        + ". Where a line breaks off, it is not finite.",
        [("", _score("loss"))],
        Axis("test loss"),
    )
    train = over_rounds(
        study,
        "train-loss",
        "Training loss",
        "Mean over the honest clients of the round, while they train.",
        [("", lambda line: line.train_loss)],
        Axis("training loss"),
        scored=False,
    )
    charts = [chart for chart in (test, train) if chart]
    return Section("loss", "Loss over rounds", "Loss", charts=charts) if charts else None


def backdoor(study: Study) -> Section | None:
    """How often a trigger works."""
    chart = over_rounds(
        study,
        "backdoor",
        "Backdoor",
        "Share of the test examples with the attackers' trigger that get the label they want. "
        "Lower is better.",
        [("", _score("backdoor"))],
        Axis("backdoor accuracy", percent=True),
    )
    return _alone(chart, "Backdoor")


def kappa(study: Study) -> Section | None:
    """The rule's error beside what is proved of it."""
    chart = over_rounds(
        study,
        "kappa",
        "κ seen and κ proved",
        "κ seen is the aggregate's squared distance from the honest mean over the honest variance. "
        "As long as a round holds no more than b̂ bad clients, it is at most the κ proved for the "
        "rule (dotted), whatever the attack.",
        [
            ("κ seen", lambda line: line.kappa_seen),
            ("κ proved", lambda line: line.kappa_proved),
        ],
        Axis("error factor κ"),
        scored=False,
        gaps=False,
    )
    if chart is None:
        return None
    rows = [_kappa_row(series) for series in study.series]
    header = (
        "series",
        "κ proved",
        "largest κ seen, |B_t| ≤ b̂",
        "rounds above proved, |B_t| ≤ b̂",
        "largest κ seen, |B_t| > b̂",
        "rounds with |B_t| > b̂",
    )
    return Section("kappa", chart.title, "κ", charts=[chart], tables=[Table(header, rows)])


def _kappa_row(series: Series) -> list[str]:
    within: list[float] = []
    beyond: list[float] = []
    broken = outside = 0
    for run, line in series.lines:
        over = len(line.byzantine or ()) > run.tolerated
        outside += over
        if line.kappa_seen is None:
            continue
        (beyond if over else within).append(line.kappa_seen)
        proved = line.kappa_proved
        broken += not over and proved is not None and line.kappa_seen > proved * (1 + 1e-6)
    known = [line.kappa_proved for _, line in series.lines if line.kappa_proved is not None]
    proved_text = short(known[0]) if known else "none"
    if known and max(known) > min(known):
        proved_text = f"{short(min(known))} – {short(max(known))}"
    return [
        series.name,
        proved_text,
        short(max(within, default=None)),
        str(broken) if known else "–",
        short(max(beyond, default=None)),
        str(outside) if all(run.known for run in series.runs) else "not known",
    ]


def short(value: float | None) -> str:
    """Three digits; a dash for nothing."""
    return "–" if value is None else f"{value:.3g}"


def _alone(chart: Chart | None, link: str) -> Section | None:
    return None if chart is None else Section(chart.key, chart.title, link, charts=[chart])


def _score(key: str) -> Value:
    return lambda line: line.score[key] if line.score else None


def over_rounds(
    study: Study,
    key: str,
    title: str,
    text: str,
    measures: Sequence[tuple[str, Value]],
    y: Axis,
    *,
    scored: bool = True,
    gaps: bool = True,
) -> Chart | None:
    """A panel for each of the study's, with its series in it; None if nothing is known."""
    tracks = {
        (series.name, what): track(series, value, gaps=gaps, scored=scored)
        for series in study.series
        for what, value in measures
    }
    if not any(found.known for found in tracks.values()):
        return None
    scale = _scaled(y, list(tracks.values()))
    styled = [
        (series, what, DOTTED * number if len(measures) > 1 else style(series.color)[1])
        for series in study.series
        for number, (what, _) in enumerate(measures)
        if tracks[series.name, what].known
    ]
    panels = []
    for name in study.panels:
        members = [found for found in styled if found[0].panel == name]
        if members:
            own = [tracks[series.name, what] for series, what, _ in members]
            axis = scale if scale.range else _scaled(y, own, apart=True)
            marks = [
                _mark(s, t, what, dash, axis)
                for (s, what, dash), t in zip(members, own, strict=True)
            ]
            panels.append(Panel(name, marks, round_axis(study), axis))
    return Chart(key, title, " ".join([text, *_remarks(panels, tracks.values())]), panels)


def _remarks(panels: Sequence[Panel], tracks: Iterable[Track]) -> Iterator[str]:
    """How these panels are to be read."""
    if len({panel.y.range for panel in panels}) > 1:
        yield "Each panel has its own scale."
    if any(panel.y.log for panel in panels) and any(0 in found.mean for found in tracks):
        yield "Where it is 0 there is a gap if the axis is logarithmic."
    if any(mark.low is not None for panel in panels for mark in panel.marks):
        yield "Lines are means over seeds, bands go from the smallest to the largest."


def _mark(series: Series, found: Track, what: str, dash: int, axis: Axis) -> Mark:
    several = len(series.runs) > 1
    floor = axis.range[0] if axis.log and axis.range else 0.0  # for what is 0, which no log shows
    return Mark(
        series.line,
        found.rounds,
        [None if axis.log and value == 0 else value for value in found.mean],
        color=style(series.color)[0],
        dash=dash,
        low=[floor if value == 0 else value for value in found.low] if several else None,
        high=[floor if value == 0 else value for value in found.high] if several else None,
        what=what,
    )


def _scaled(axis: Axis, tracks: Sequence[Track], apart: bool = False) -> Axis:
    """One range for all panels; logarithmic where numbers are too far apart.

    It has no range where even that is not enough: then each panel gets its own.
    """
    if axis.percent:
        return replace(axis, range=(0.0, 1.0))
    means = sorted(value for found in tracks for value in found.mean if value)
    if not means or min(value for found in tracks for value in found.low if value) < 0:
        return replace(axis, range=None)  # whatever there is
    most = max(value for found in tracks for value in found.high if value)
    least = means[len(means) // 50]  # a few may be so small that they would squeeze all others
    decades = math.log10(most) - math.log10(least)
    if decades < LINEAR:
        return replace(axis, range=(0.0, most))
    return replace(axis, log=True, range=(least, most) if apart or decades < APART else None)
