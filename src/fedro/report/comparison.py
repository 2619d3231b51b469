"""What the runs came to, side by side: a table of all series, and rule × attack."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedro.common.text import counted
from fedro.report.chart import Chart, Heat, Section, Table
from fedro.report.runs import Run
from fedro.report.series import TOLD, Series, Study, mean

SCORES = {
    "accuracy": "accuracy",
    "clients": "mean client",
    "worst": "worst tenth",
    "loss": "test loss",
    "backdoor": "backdoor",
}
SETTINGS = (  # keys worth a glance, where all runs have the same
    *("dataset", "partition", "model", "clients", "byzantine", "attack", "rule"),
    *("rounds", "local_steps", "batch_size", "client_lr", "server_lr", "momentum", "l2", "output"),
)
DASH = "–"


class Spread(NamedTuple):
    """A number over seeds."""

    mean: float
    low: float
    high: float


def final(runs: Sequence[Run], key: str) -> Spread | None:
    """A score of the final models over seeds; None unless all have it."""
    values = [run.final[key] if run.final else None for run in runs]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return Spread(mean(known), min(known), max(known))


def written(value: float, percent: bool) -> str:
    """A number as the tables show it."""
    return f"{100 * value:.1f}%" if percent else f"{value:.4g}"


def overview(study: Study) -> Section:
    """What was run, and what came of it."""
    runs = study.runs
    done = sum(run.finished for run in runs)
    seeds = sorted({run.seed for run in runs})
    finished = "finished" if done == len(runs) else f"{done} of them finished"
    text = [
        f"{counted(len(runs), 'run')} ({finished}), "
        f"{counted(len(seeds), 'seed')} ({ranges(seeds)}). "
        "Runs that differ only in their seed are one series"
        + (f"; the series differ in {_listed(study.differing)}." if study.differing else ".")
    ]
    if settings := _settings(study):
        text.append("Every run has " + ", ".join(settings) + ".")
    note = "Final models, on the honest clients' test data"
    if study.deployed:
        note = f"Final models. {TOLD}"
    if any(len(series.runs) > 1 for series in study.series):
        note += ": the mean over seeds, and from the smallest to the largest"
    note += "." if done == len(runs) else "; of unfinished runs, the last evaluation until now."
    return Section("overview", "What was run", "Runs", text, tables=[_results(study, note)])


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _settings(study: Study) -> list[str]:
    first = study.runs[0]
    same = [key for key in SETTINGS if key not in study.differing]
    found = [f"{key} {first.config[key]}" for key in same if first.config[key] is not None]
    if len({(run.sampled, run.tolerated) for run in study.runs}) == 1:
        found.append(f"n̂ = {first.sampled} sampled and b̂ = {first.tolerated} tolerated a round")
    return found


def _results(study: Study, note: str) -> Table:
    """A line for each series; columns in which nothing ever happened are left out."""
    columns: dict[str, list[str]] = {"series": [_marked(series) for series in study.series]}
    columns["seeds"] = [ranges([run.seed for run in series.runs]) for series in study.series]
    columns["rounds"] = [_rounds(series.runs) for series in study.series]
    for key, name in SCORES.items():
        cells = [_cell(final(series.runs, key), key != "loss") for series in study.series]
        if any(cell != DASH for cell in cells) or key == "loss":
            columns[name] = cells
    for name, value in (
        ("rounds with |B_t| > b̂", lambda run: run.overrun),
        ("void rounds", lambda run: sum(line.void is not None for line in run.lines)),
        ("takeovers", lambda run: sum(line.takeover for line in run.lines)),
        ("rejected", lambda run: sum(len(line.rejected) for line in run.lines)),
        ("missing", lambda run: sum(len(line.missing) for line in run.lines)),
    ):
        counts = [_total(map(value, series.runs)) for series in study.series]
        if any(counts):
            columns[name] = [DASH if count is None else str(count) for count in counts]
    columns["seconds a run"] = [
        f"{mean([run.seconds for run in series.runs]):.3g}" for series in study.series
    ]
    return Table(list(columns), list(zip(*columns.values(), strict=True)), note=note)


def _total(counts: Iterable[int | None]) -> int | None:
    """Their sum, if all are known."""
    found = list(counts)
    return None if None in found else sum(count or 0 for count in found)


def _marked(series: Series) -> str:
    return series.name + ("" if all(run.finished for run in series.runs) else " (unfinished)")


def _rounds(runs: Sequence[Run]) -> str:
    fewest, most = min(len(run.lines) for run in runs), max(len(run.lines) for run in runs)
    done = str(most) if fewest == most else f"{fewest}–{most}"
    return done if fewest == runs[0].rounds else f"{done} of {runs[0].rounds}"


def _cell(found: Spread | None, percent: bool) -> str:
    if found is None:
        return DASH
    text = written(found.mean, percent)
    if found.low == found.high:
        return text
    return f"{text} ({written(found.low, percent)} – {written(found.high, percent)})"


def ranges(numbers: Sequence[int]) -> str:
    """0–4, 7, 9–11.

    >>> ranges([0, 1, 2, 7, 9, 10])
    '0–2, 7, 9–10'
    """
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("–".join(map(str, part)) for part in parts)


def heat(study: Study) -> Section | None:
    """Rule × attack, with each rule's worst case marked; None if there is only one of each."""
    measure = "accuracy"
    if all(final(series.runs, measure) is None for series in study.series):
        measure = "loss"
    others = [key for key in study.naming if key not in ("rule", "attack")]
    groups: dict[str, list[Series]] = {}
    for series in study.series:
        name = " · ".join(f"{key}={series.config.get(key)}" for key in others)
        groups.setdefault(name, []).append(series)
    maps = [_map(name, members, measure) for name, members in groups.items()]
    maps = [found for found in maps if len(found.rows) * len(found.columns) > 1]
    if not maps:
        return None
    title = f"Final {SCORES[measure]}: rule × attack"
    text = (
        f"Mean over seeds of the final model's {SCORES[measure]}. Framed: the attack that is worst "
        "for the rule, which is what counts, since one does not know before which will come."
    )
    if any("*" in cell for found in maps for row in found.texts for cell in row):
        text += " *: of unfinished runs, so far."
    worst = [sentence for found in maps for sentence in _worst_cases(found)]
    chart = Chart("rule-attack", title, text, maps)
    return Section(
        "rule-attack", title, "Rule × attack", charts=[chart], tables=[_worst_table(worst)]
    )


def _map(name: str, members: Sequence[Series], measure: str) -> Heat:
    rules = list(dict.fromkeys(str(series.config["rule"]) for series in members))
    attacks = list(dict.fromkeys(str(series.config["attack"]) for series in members))
    cells = {(str(s.config["rule"]), str(s.config["attack"])): s for s in members}
    percent = measure != "loss"
    values: list[list[float | None]] = []
    texts: list[list[str]] = []
    for rule in rules:
        row = [cells.get((rule, attack)) for attack in attacks]
        found = [final(series.runs, measure) if series else None for series in row]
        values.append([spread.mean if spread else None for spread in found])
        texts.append([_heat_text(s, f, percent) for s, f in zip(row, found, strict=True)])
    worst = [_worst(row, highest=not percent) for row in values]
    return Heat(name, rules, attacks, values, texts, worst, SCORES[measure], percent)


def _heat_text(series: Series | None, found: Spread | None, percent: bool) -> str:
    if series is None:
        return ""
    mark = "" if all(run.finished for run in series.runs) else "*"
    return (DASH if found is None else written(found.mean, percent)) + mark


def _worst(row: Sequence[float | None], highest: bool) -> int | None:
    """The column of the worst number, if there are several to choose from."""
    known = [(value, column) for column, value in enumerate(row) if value is not None]
    if len(known) < 2:
        return None
    return (max(known) if highest else min(known))[1]


def _worst_cases(found: Heat) -> list[list[str]]:
    return [
        [found.title, rule, found.columns[column], found.texts[row][column]]
        for row, (rule, column) in enumerate(zip(found.rows, found.worst, strict=True))
        if column is not None
    ]


def _worst_table(rows: Sequence[list[str]]) -> Table:
    header = ["", "rule", "its worst attack", "result"]
    if not any(row[0] for row in rows):
        header, rows = header[1:], [row[1:] for row in rows]
    return Table(header, rows)
