"""Groups runs that differ only in their seed into series, and names the series."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedro.common.text import counted
from fedro.report.run_data import RoundData, RunData

KEYS_WITHIN_A_SERIES = ("seed", "workers", "checkpoint_every")  # runs of a series may differ here
LEADING_KEYS = ("rule", "attack")  # come first in a series' name, as values without their key
MAX_PANELS = 24  # side by side in one chart
MAX_PROBLEMS = 5  # runs that came to nothing, in the notes

REPORTED_BY_CLIENTS = (  # explains the score of a deployed run
    "Reported by the clients on their own test data: the mean without the b̂ most extreme answers "
    "on each side"
)


@dataclass(frozen=True)
class Series:
    """Runs that differ only in their seed."""

    name: str  # the values of the keys in which the series differ
    label: str  # the name inside a panel: the first of these keys, and those not in `panel`
    panel: str  # the title of its panel: the other keys, if that gives few enough panels
    color: int  # the same for the same label in all panels
    runs: list[RunData]

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that the runs share, with the seed of the first."""
        return self.runs[0].config

    @property
    def rounds(self) -> Iterable[tuple[RunData, RoundData]]:
        """All rounds of all runs."""
        return ((run, round_) for run in self.runs for round_ in run.rounds)


@dataclass(frozen=True)
class ReportData:
    """The series of a report, and how they differ."""

    series: list[Series]
    differing: list[str]  # the keys in which runs differ, without the seed
    naming: list[str]  # those in the series' names: keys that follow from others are left out
    notes: list[str]  # what a reader must know before anything else

    @property
    def runs(self) -> list[RunData]:
        """All runs."""
        return [run for series in self.series for run in series.runs]

    @property
    def deployed(self) -> bool:
        """Whether all runs used real clients, so that only the clients' reports are known."""
        return all(run.deployed for run in self.runs)

    @property
    def panels(self) -> list[str]:
        """The titles of the panels in which series are drawn."""
        return list(dict.fromkeys(series.panel for series in self.series))


class Curve(NamedTuple):
    """A number over rounds: its mean, minimum and maximum over seeds."""

    rounds: list[int]
    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]

    @property
    def known(self) -> bool:
        """Whether any value is known."""
        return any(value is not None for value in self.mean)


def mean_curve(
    series: Series,
    value: Callable[[RoundData], float | None],
    *,
    gaps: bool = True,
    scored: bool = True,
) -> Curve:
    """The mean of a value over the seeds of a series, for evaluated rounds or for all rounds.

    Args:
        series: The runs to average.
        value: Reads the value from a round; None where it is unknown or not finite.
        gaps: Leave a gap in rounds where any seed's value is None. Otherwise such seeds are
            left out of the mean.
        scored: Use evaluated rounds only.
    """
    values_by_round: dict[int, list[float | None]] = {}
    for _, round_ in series.rounds:
        if round_.score is not None or not scored:
            values_by_round.setdefault(round_.round, []).append(value(round_))
    rows = [
        (number, _mean_and_range(values, gaps))
        for number, values in sorted(values_by_round.items())
    ]
    columns = [[numbers[i] for _, numbers in rows] for i in range(3)]
    return Curve([number for number, _ in rows], *columns)


def _mean_and_range(
    values: Sequence[float | None], gaps: bool
) -> tuple[float | None, float | None, float | None]:
    known = [value for value in values if value is not None]
    if not known or (gaps and len(known) < len(values)):
        return None, None, None
    return mean(known), min(known), max(known)


def mean(values: Sequence[float]) -> float:
    """The mean. For a single value it is exactly that value."""
    return values[0] if len(values) == 1 else sum(values) / len(values)


def group_runs(runs: Sequence[RunData], notes: Sequence[str] = ()) -> ReportData:
    """Group runs into named series and collect the notes about them."""
    kept, duplicates = _without_duplicates(runs)
    keys = list(
        dict.fromkeys(key for run in kept for key in run.config if key not in KEYS_WITHIN_A_SERIES)
    )
    keys.sort(key=lambda key: LEADING_KEYS.index(key) if key in LEADING_KEYS else len(LEADING_KEYS))
    differing = [key for key in keys if len({_text(run.config.get(key)) for run in kept}) > 1]
    groups: dict[tuple[str, ...], list[RunData]] = {}
    for run in sorted(
        kept, key=lambda run: [_sort_key(run.config.get(k)) for k in [*differing, "seed"]]
    ):
        groups.setdefault(tuple(_text(run.config.get(key)) for key in differing), []).append(run)
    naming = _naming_keys(list(groups.values()), differing)
    series = _name_series(list(groups.values()), naming)
    failed = _problems(series)
    all_notes = [*notes, *duplicates, *_unfinished(kept), *failed, *_differing_versions(kept)]
    return ReportData(series, differing, naming, all_notes)


def _without_duplicates(runs: Sequence[RunData]) -> tuple[list[RunData], list[str]]:
    """Of two folders that hold the same run, keep the one with more rounds."""
    best: dict[str, RunData] = {}
    notes = []
    for run in runs:
        config = {k: v for k, v in run.config.items() if k not in KEYS_WITHIN_A_SERIES[1:]}
        identity = repr(sorted(config.items())) + repr(sorted(run.fingerprint.items()))
        other = best.setdefault(identity, run)
        if other is not run:
            more, less = (run, other) if len(run.rounds) > len(other.rounds) else (other, run)
            best[identity] = more
            notes.append(f"{less.path} is the same run as {more.path}, so it is left out.")
    return list(best.values()), notes


def _problems(series: Sequence[Series]) -> list[str]:
    """Runs that have come to nothing, and why."""
    problems = [
        f"{each.name}, seed {run.seed}: {run.problem}"
        for each in series
        for run in each.runs
        if run.problem is not None
    ]
    more = len(problems) - MAX_PROBLEMS
    if more > 0:
        note = f"{counted(more, 'more run')} came to nothing; see “Unused replies, void rounds”."
        return [*problems[:MAX_PROBLEMS], note]
    return problems


def _text(value: Any) -> str:
    return "not set" if value is None else str(value)


def _sort_key(value: Any) -> tuple[int, float, str]:
    """Sorts missing values first, then numbers by size, then texts."""
    if isinstance(value, (int, float)):
        return 1, float(value), ""
    text = _text(value)
    return (0, 0.0, "") if text in ("none", "not set") else (2, 0.0, text)


def _naming_keys(groups: Sequence[Sequence[RunData]], differing: Sequence[str]) -> list[str]:
    """The keys that are needed to tell the groups apart, without keys determined by another."""
    needed: list[str] = []
    for key in differing:
        pairs = {
            other: {(_text(g[0].config.get(other)), _text(g[0].config.get(key))) for g in groups}
            for other in needed
        }
        determined = any(len(seen) == len({a for a, _ in seen}) for seen in pairs.values())
        if key in LEADING_KEYS or not determined:
            needed.append(key)
    return needed or list(LEADING_KEYS)


def _name_series(groups: Sequence[list[RunData]], keys: Sequence[str]) -> list[Series]:
    """The first key tells lines apart; the others make panels, up to `MAX_PANELS` of them."""
    names = [[_key_and_value(key, runs[0].config.get(key)) for key in keys] for runs in groups]
    end = 1 if len(groups) == 1 else len(keys)  # keys[1:end] make panels
    while len({tuple(parts[1:end]) for parts in names}) > MAX_PANELS:
        end -= 1
    labels = [_joined(parts[:1] + parts[end:]) for parts in names]
    colors = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return [
        Series(_joined(parts), label, _joined(parts[1:end]), colors[label], runs)
        for parts, label, runs in zip(names, labels, groups, strict=True)
    ]


def _key_and_value(key: str, value: Any) -> str:
    return _text(value) if key in LEADING_KEYS else f"{key}={_text(value)}"


def _joined(parts: Sequence[str]) -> str:
    return " · ".join(parts)


def _unfinished(runs: Sequence[RunData]) -> list[str]:
    return [
        f"{run.path} is unfinished: {len(run.rounds)} of {run.planned_rounds} rounds are shown."
        for run in runs
        if not run.finished
    ]


def _differing_versions(runs: Sequence[RunData]) -> list[str]:
    """A note if the runs come from different versions or machines, which alone changes results."""
    keys = ("fedro", "torch", "numpy", "python", "cpu", "device")
    seen = {key: sorted({_text(run.fingerprint.get(key)) for run in runs}) for key in keys}
    odd = [f"{key}: {', '.join(values)}" for key, values in seen.items() if len(values) > 1]
    if not odd:
        return []
    return [f"The runs were made with different versions or machines ({'; '.join(odd)})."]
