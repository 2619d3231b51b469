"""Results side by side: a table of all series, and a heat map of rule × attack."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedro.common.text import counted
from fedro.report.chart import Chart, HeatMap, Section, TextTable
from fedro.report.run_data import RunData
from fedro.report.series import REPORTED_BY_CLIENTS, ReportData, Series, mean

SCORE_NAMES = {
    "accuracy": "accuracy",
    "clients": "mean client",
    "worst": "worst tenth",
    "loss": "test loss",
    "backdoor": "backdoor",
}
SHOWN_KEYS = (  # listed in the overview if all runs have the same value
    *("dataset", "partition", "model", "clients", "byzantine", "attack", "rule"),
    *("rounds", "local_steps", "batch_size", "client_lr", "server_lr", "momentum", "l2", "output"),
)
DASH = "–"


class MeanAndRange(NamedTuple):
    """A number over seeds."""

    mean: float
    low: float
    high: float


def final_score(runs: Sequence[RunData], key: str) -> MeanAndRange | None:
    """A score of the final models over seeds; None unless all runs have it."""
    values = [run.last_score[key] if run.last_score else None for run in runs]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return MeanAndRange(mean(known), min(known), max(known))


def format_score(value: float, percent: bool) -> str:
    """A score as the tables show it."""
    return f"{100 * value:.1f}%" if percent else f"{value:.4g}"


def overview_section(data: ReportData) -> Section:
    """What was run, with the final scores."""
    runs = data.runs
    finished = sum(run.finished for run in runs)
    seeds = sorted({run.seed for run in runs})
    progress = "finished" if finished == len(runs) else f"{finished} of them finished"
    text = [
        f"{counted(len(runs), 'run')} ({progress}), "
        f"{counted(len(seeds), 'seed')} ({format_ranges(seeds)}). "
        "Runs that differ only in their seed form one series"
        + (f"; the series differ in {_listed(data.differing)}." if data.differing else ".")
    ]
    if shared := _shared_values(data):
        text.append("All runs share " + ", ".join(shared) + ".")
    descriptions = {run.data for run in runs if run.data is not None}
    if len(descriptions) == 1:
        text.append(f"Data: {descriptions.pop()}.")
    note = "Final models on the honest clients' test data"
    if data.deployed:
        note = f"Final models. {REPORTED_BY_CLIENTS}"
    if any(len(series.runs) > 1 for series in data.series):
        note += ": mean over seeds, with the smallest and largest seed below"
    note += "." if finished == len(runs) else ". Unfinished runs show their last evaluation."
    return Section("overview", "What was run", "Runs", text, tables=[_results_table(data, note)])


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _shared_values(data: ReportData) -> list[str]:
    first = data.runs[0]
    keys = [key for key in SHOWN_KEYS if key not in data.differing]
    texts = [f"{key} {first.config[key]}" for key in keys if first.config[key] is not None]
    if len({(run.sampled, run.tolerated) for run in data.runs}) == 1:
        texts.append(
            f"n̂ = {first.sampled} sampled and b̂ = {first.tolerated} tolerated in each round"
        )
    return texts


def _results_table(data: ReportData, note: str) -> TextTable:
    """A line for each series. Columns that are zero or empty in every line are left out."""
    columns: dict[str, list[str]] = {"series": [_name(series) for series in data.series]}
    columns["seeds"] = [format_ranges([run.seed for run in series.runs]) for series in data.series]
    columns["rounds"] = [_rounds(series.runs) for series in data.series]
    for key, name in SCORE_NAMES.items():
        cells = [_cell(final_score(series.runs, key), key != "loss") for series in data.series]
        if any(cell != DASH for cell in cells) or key == "loss":
            columns[name] = cells
    for name, count in (
        ("overruns", lambda run: run.overruns),
        ("void rounds", lambda run: sum(round_.void is not None for round_ in run.rounds)),
        ("takeovers", lambda run: sum(round_.takeover for round_ in run.rounds)),
        ("rejected", lambda run: sum(len(round_.rejected) for round_ in run.rounds)),
        ("missing", lambda run: sum(len(round_.missing) for round_ in run.rounds)),
    ):
        totals = [_total(map(count, series.runs)) for series in data.series]
        if any(totals):
            columns[name] = [DASH if total is None else str(total) for total in totals]
    columns["seconds per run"] = [
        f"{mean([run.seconds for run in series.runs]):.3g}" for series in data.series
    ]
    return TextTable(list(columns), list(zip(*columns.values(), strict=True)), note=note)


def _total(counts: Iterable[int | None]) -> int | None:
    """The sum, or None if any count is unknown."""
    values = list(counts)
    return None if None in values else sum(value or 0 for value in values)


def _name(series: Series) -> str:
    return series.name + ("" if all(run.finished for run in series.runs) else " (unfinished)")


def _rounds(runs: Sequence[RunData]) -> str:
    fewest, most = min(len(run.rounds) for run in runs), max(len(run.rounds) for run in runs)
    completed = str(most) if fewest == most else f"{fewest}–{most}"
    planned = runs[0].planned_rounds
    return completed if fewest == planned else f"{completed} of {planned}"


def _cell(score: MeanAndRange | None, percent: bool) -> str:
    if score is None:
        return DASH
    text = format_score(score.mean, percent)
    if score.low == score.high:
        return text
    return f"{text} ({format_score(score.low, percent)} – {format_score(score.high, percent)})"


def format_ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers, with consecutive ones joined.

    >>> format_ranges([0, 1, 2, 7, 9, 10])
    '0–2, 7, 9–10'
    """
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    return ", ".join("–".join(map(str, ends)) for ends in ranges)


def heat_map_section(data: ReportData) -> Section | None:
    """Rule × attack, with the worst attack of each rule framed; None if there is one of each."""
    measure = "accuracy"
    if all(final_score(series.runs, measure) is None for series in data.series):
        measure = "loss"
    others = [key for key in data.naming if key not in ("rule", "attack")]
    groups: dict[str, list[Series]] = {}
    for series in data.series:
        name = " · ".join(f"{key}={series.config.get(key)}" for key in others)
        groups.setdefault(name, []).append(series)
    heat_maps = [_heat_map(name, members, measure) for name, members in groups.items()]
    heat_maps = [each for each in heat_maps if len(each.rows) * len(each.columns) > 1]
    if not heat_maps:
        return None
    title = f"Final {SCORE_NAMES[measure]}: rule × attack"
    text = (
        f"The final model's {SCORE_NAMES[measure]}, averaged over seeds. The frame marks the worst "
        "attack for each rule. Compare rules by this cell, because you cannot know in advance "
        "which attack you will face."
    )
    if any("*" in cell for each in heat_maps for row in each.texts for cell in row):
        text += " An asterisk marks unfinished runs."
    worst = [row for each in heat_maps for row in _worst_rows(each)]
    chart = Chart("rule-attack", title, text, heat_maps)
    return Section(
        "rule-attack", title, "Rule × attack", charts=[chart], tables=[_worst_table(worst)]
    )


def _heat_map(name: str, members: Sequence[Series], measure: str) -> HeatMap:
    rules = list(dict.fromkeys(str(series.config["rule"]) for series in members))
    attacks = list(dict.fromkeys(str(series.config["attack"]) for series in members))
    cells = {(str(s.config["rule"]), str(s.config["attack"])): s for s in members}
    percent = measure != "loss"
    values: list[list[float | None]] = []
    texts: list[list[str]] = []
    for rule in rules:
        row = [cells.get((rule, attack)) for attack in attacks]
        scores = [final_score(series.runs, measure) if series else None for series in row]
        values.append([score.mean if score else None for score in scores])
        texts.append([_cell_text(*pair, percent) for pair in zip(row, scores, strict=True)])
    worst = [_worst_column(row, highest=not percent) for row in values]
    return HeatMap(name, rules, attacks, values, texts, worst, SCORE_NAMES[measure], percent)


def _cell_text(series: Series | None, score: MeanAndRange | None, percent: bool) -> str:
    if series is None:
        return ""
    asterisk = "" if all(run.finished for run in series.runs) else "*"
    return (DASH if score is None else format_score(score.mean, percent)) + asterisk


def _worst_column(row: Sequence[float | None], highest: bool) -> int | None:
    """The column of the worst number, if there are at least two numbers."""
    known = [(value, column) for column, value in enumerate(row) if value is not None]
    if len(known) < 2:
        return None
    return (max(known) if highest else min(known))[1]


def _worst_rows(heat_map: HeatMap) -> list[list[str]]:
    return [
        [heat_map.title, rule, heat_map.columns[column], heat_map.texts[row][column]]
        for row, (rule, column) in enumerate(zip(heat_map.rows, heat_map.worst, strict=True))
        if column is not None
    ]


def _worst_table(rows: Sequence[list[str]]) -> TextTable:
    header = ["", "rule", "worst attack", "result"]
    if not any(row[0] for row in rows):
        header, rows = header[1:], [row[1:] for row in rows]
    return TextTable(header, rows)
