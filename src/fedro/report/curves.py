"""Charts over rounds: accuracy, loss, the worst-off clients, backdoors and κ."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from fedro.report.chart import Axis, Chart, Panel, Section, TextTable, Trace, line_style
from fedro.report.run_data import RoundData
from fedro.report.series import REPORTED_BY_CLIENTS, Curve, ReportData, Series, mean_curve

DOTTED = 2  # the dash style of the second of two measures
MAX_LINEAR_DECADES = 1.5  # beyond this, an axis is logarithmic
MAX_SHARED_DECADES = 4  # beyond this, each panel has its own scale
Value = Callable[[RoundData], float | None]


def rounds_axis(data: ReportData) -> Axis:
    """An axis with all planned rounds, the same in all charts so that they can be compared."""
    last = max(1, *(run.planned_rounds - 1 for run in data.runs))
    return Axis("round (the first is 0)", integers=True, range=(0, last))


def accuracy_section(data: ReportData) -> Section | None:
    """Accuracy on the test data of all honest clients."""
    chart = curves_chart(
        data,
        "accuracy",
        "Accuracy over rounds",
        "Share of all honest clients' test examples that the model classifies correctly.",
        [("", _score("accuracy"))],
        Axis("accuracy", percent=True),
    )
    return _chart_section(chart, "Accuracy")


def clients_section(data: ReportData) -> Section | None:
    """Accuracy of the mean client and of the worst-off tenth."""
    chart = curves_chart(
        data,
        "fairness",
        "The mean client" if data.deployed else "The mean client and the worst-off tenth",
        f"{REPORTED_BY_CLIENTS}. Results of the worst-off clients are not available."
        if data.deployed
        else "Solid: accuracy averaged over clients. Dotted: mean accuracy of the tenth of the "
        "clients with the lowest accuracy. A robust rule can filter out minorities, and then the "
        "dotted line stays low.",
        [("mean client", _score("clients")), ("worst tenth", _score("worst"))],
        Axis("clients' accuracy", percent=True),
    )
    return _chart_section(chart, "Clients")


def loss_section(data: ReportData) -> Section | None:
    """Loss on the honest clients' test data, and in their training."""
    test = curves_chart(
        data,
        "loss",
        "Test loss",
        (REPORTED_BY_CLIENTS if data.deployed else "Mean over all honest clients' test examples")
        + ". A line ends where the loss is no longer finite.",
        [("", _score("loss"))],
        Axis("test loss"),
    )
    train = curves_chart(
        data,
        "train-loss",
        "Training loss",
        "Mean over the honest clients of the round during their local training.",
        [("", lambda round_: round_.train_loss)],
        Axis("training loss"),
        scored=False,
    )
    charts = [chart for chart in (test, train) if chart]
    return Section("loss", "Loss over rounds", "Loss", charts=charts) if charts else None


def backdoor_section(data: ReportData) -> Section | None:
    """How often the attackers' trigger works."""
    chart = curves_chart(
        data,
        "backdoor",
        "Backdoor",
        "Share of the test examples with the attackers' trigger that the model gives the label "
        "the attackers want. Lower is better.",
        [("", _score("backdoor"))],
        Axis("backdoor accuracy", percent=True),
    )
    return _chart_section(chart, "Backdoor")


def kappa_section(data: ReportData) -> Section | None:
    """The κ that was measured in each round beside the κ that is proved for the rule."""
    chart = curves_chart(
        data,
        "kappa",
        "κ seen in the run and κ proved for the rule",
        "κ seen is the squared distance of the aggregate from the honest mean, divided by the "
        "variance of the honest updates. While a round has at most b̂ Byzantine clients, κ seen "
        "cannot exceed the κ proved for the rule (dotted), whatever the attack.",
        [
            ("κ seen in the run", lambda round_: round_.kappa_seen),
            ("κ proved for the rule", lambda round_: round_.kappa_proved),
        ],
        Axis("robustness coefficient κ"),
        scored=False,
        gaps=False,
    )
    if chart is None:
        return None
    rows = [_kappa_row(series) for series in data.series]
    header = (
        "series",
        "κ proved for the rule",
        "largest κ seen, |B_t| ≤ b̂",
        "rounds above κ proved, |B_t| ≤ b̂",
        "largest κ seen, |B_t| > b̂",
        "rounds with |B_t| > b̂",
    )
    return Section("kappa", chart.title, "κ", charts=[chart], tables=[TextTable(header, rows)])


def _kappa_row(series: Series) -> list[str]:
    within: list[float] = []
    overrun: list[float] = []
    violations = overruns = 0
    for run, round_ in series.rounds:
        over = len(round_.byzantine or ()) > run.tolerated
        overruns += over
        if round_.kappa_seen is None:
            continue
        (overrun if over else within).append(round_.kappa_seen)
        proved = round_.kappa_proved
        violations += not over and proved is not None and round_.kappa_seen > proved * (1 + 1e-6)
    known = [round_.kappa_proved for _, round_ in series.rounds if round_.kappa_proved is not None]
    proved_text = three_digits(known[0]) if known else "none"
    if known and max(known) > min(known):
        proved_text = f"{three_digits(min(known))} – {three_digits(max(known))}"
    return [
        series.name,
        proved_text,
        three_digits(max(within, default=None)),
        str(violations) if known else "–",
        three_digits(max(overrun, default=None)),
        str(overruns) if all(run.byzantine_known for run in series.runs) else "unknown",
    ]


def three_digits(value: float | None) -> str:
    """The value with three significant digits; a dash for None."""
    return "–" if value is None else f"{value:.3g}"


def _chart_section(chart: Chart | None, link: str) -> Section | None:
    return None if chart is None else Section(chart.key, chart.title, link, charts=[chart])


def _score(key: str) -> Value:
    return lambda round_: round_.score[key] if round_.score else None


def curves_chart(
    data: ReportData,
    key: str,
    title: str,
    text: str,
    measures: Sequence[tuple[str, Value]],
    y: Axis,
    *,
    scored: bool = True,
    gaps: bool = True,
) -> Chart | None:
    """A chart with the curves of all series, one panel for each title; None without any value."""
    curves = {
        (series.name, measure): mean_curve(series, value, gaps=gaps, scored=scored)
        for series in data.series
        for measure, value in measures
    }
    if not any(curve.known for curve in curves.values()):
        return None
    scale = _scaled(y, list(curves.values()))
    styled = [
        (series, measure, DOTTED * number if len(measures) > 1 else line_style(series.color)[1])
        for series in data.series
        for number, (measure, _) in enumerate(measures)
        if curves[series.name, measure].known
    ]
    panels = []
    for name in data.panels:
        members = [member for member in styled if member[0].panel == name]
        if members:
            own = [curves[series.name, measure] for series, measure, _ in members]
            axis = scale if scale.range else _scaled(y, own, one_panel=True)
            traces = [
                _trace(series, curve, measure, dash, axis)
                for (series, measure, dash), curve in zip(members, own, strict=True)
            ]
            panels.append(Panel(name, traces, rounds_axis(data), axis))
    return Chart(key, title, " ".join([text, *_remarks(panels, curves.values())]), panels)


def _remarks(panels: Sequence[Panel], curves: Iterable[Curve]) -> Iterator[str]:
    """Sentences on how to read these panels."""
    if len({panel.y.range for panel in panels}) > 1:
        yield "Each panel has its own scale."
    if any(panel.y.log for panel in panels) and any(0 in curve.mean for curve in curves):
        yield "On a logarithmic axis, a value of 0 leaves a gap."
    if any(trace.low is not None for panel in panels for trace in panel.traces):
        yield "Lines are means over seeds; bands span the smallest and largest seed."


def _trace(series: Series, curve: Curve, measure: str, dash: int, axis: Axis) -> Trace:
    several = len(series.runs) > 1
    floor = axis.range[0] if axis.log and axis.range else 0.0  # stands for 0 on a log axis
    return Trace(
        series.label,
        curve.rounds,
        [None if axis.log and value == 0 else value for value in curve.mean],
        color=line_style(series.color)[0],
        dash=dash,
        low=[floor if value == 0 else value for value in curve.low] if several else None,
        high=[floor if value == 0 else value for value in curve.high] if several else None,
        measure=measure,
    )


def _scaled(axis: Axis, curves: Sequence[Curve], one_panel: bool = False) -> Axis:
    """The axis with a range that fits these curves, logarithmic if they span many decades.

    The range is None if the curves of several panels are too far apart to share one.
    """
    if axis.percent:
        return replace(axis, range=(0.0, 1.0))
    means = sorted(value for curve in curves for value in curve.mean if value)
    if not means or min(value for curve in curves for value in curve.low if value) < 0:
        return replace(axis, range=None)
    largest = max(value for curve in curves for value in curve.high if value)
    smallest = means[len(means) // 50]  # a few tiny values must not squeeze all others
    decades = math.log10(largest) - math.log10(smallest)
    if decades < MAX_LINEAR_DECADES:
        return replace(axis, range=(0.0, largest))
    shared = one_panel or decades < MAX_SHARED_DECADES
    return replace(axis, log=True, range=(smallest, largest) if shared else None)
