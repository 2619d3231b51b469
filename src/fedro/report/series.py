"""Series: runs that differ only in their seed, named and arranged by what the others differ in."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedro.report.runs import Line, Run

FREE = ("seed", "workers", "checkpoint_every")  # keys that do not tell one series from another
FIRST = ("rule", "attack")  # keys that name a series before all others, and without their key
MOST_PANELS = 24  # side by side; more would be more than one can look at


TOLD = (  # the score of a run on real clients
    "What clients say of the model on their own test data: the mean without the b̂ answers that "
    "are most extreme on each side"
)


@dataclass(frozen=True)
class Series:
    """Runs that differ only in their seed."""

    name: str  # the keys in which it differs from others
    line: str  # what it is called in a panel: the first of these keys, and those not in `panel`
    panel: str  # the panel it is drawn in: the other keys, if that makes few enough panels
    color: int  # of the line; the same for the same name in all panels
    runs: list[Run]

    @property
    def config(self) -> dict[str, Any]:
        """What its runs have in common, and the first one's seed."""
        return self.runs[0].config

    @property
    def lines(self) -> Iterable[tuple[Run, Line]]:
        """All rounds of all runs."""
        return ((run, line) for run in self.runs for line in run.lines)


@dataclass(frozen=True)
class Study:
    """All that a report is about."""

    series: list[Series]
    differing: list[str]  # keys, without the seed
    naming: list[str]  # those that name the series: without the ones that follow from others
    notes: list[str]  # what a reader must know before anything else

    @property
    def runs(self) -> list[Run]:
        """All runs."""
        return [run for series in self.series for run in series.runs]

    @property
    def deployed(self) -> bool:
        """Whether all its clients were real, so that nothing is known but what they say."""
        return all(run.deployed for run in self.runs)

    @property
    def panels(self) -> list[str]:
        """The names of the panels that series are drawn in."""
        return list(dict.fromkeys(series.panel for series in self.series))


class Track(NamedTuple):
    """A number over rounds: its mean over seeds, and the smallest and largest."""

    rounds: list[int]
    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]

    @property
    def known(self) -> bool:
        """Is there anything to see?"""
        return any(value is not None for value in self.mean)


def track(
    series: Series, value: Callable[[Line], float | None], *, gaps: bool = True, scored: bool = True
) -> Track:
    """Over the rounds that were evaluated (or over all).

    Where a seed's number is not finite there is a gap; or it is left out, if gaps are not wanted.
    """
    found: dict[int, list[float | None]] = {}
    for _, line in series.lines:
        if line.score is not None or not scored:
            found.setdefault(line.round, []).append(value(line))
    rows = [(round, _spread(values, gaps)) for round, values in sorted(found.items())]
    columns = [[spread[i] for _, spread in rows] for i in range(3)]
    return Track([round for round, _ in rows], *columns)


def _spread(
    values: Sequence[float | None], gaps: bool
) -> tuple[float | None, float | None, float | None]:
    known = [value for value in values if value is not None]
    if not known or (gaps and len(known) < len(values)):
        return None, None, None
    return mean(known), min(known), max(known)


def mean(values: Sequence[float]) -> float:
    """One number's mean is that number, to the bit."""
    return values[0] if len(values) == 1 else sum(values) / len(values)


def study(runs: Sequence[Run], notes: Sequence[str] = ()) -> Study:
    """Group runs into series, name them, and say what is odd about them."""
    kept, twice = _without_copies(runs)
    keys = list(dict.fromkeys(key for run in kept for key in run.config if key not in FREE))
    keys.sort(key=lambda key: FIRST.index(key) if key in FIRST else len(FIRST))
    differing = [key for key in keys if len({_text(run.config.get(key)) for run in kept}) > 1]
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in sorted(
        kept, key=lambda run: [_rank(run.config.get(k)) for k in [*differing, "seed"]]
    ):
        groups.setdefault(tuple(_text(run.config.get(key)) for key in differing), []).append(run)
    naming = _naming(list(groups.values()), differing)
    series = _arranged(list(groups.values()), naming)
    return Study(series, differing, naming, [*notes, *twice, *_unfinished(kept), *_versions(kept)])


def _without_copies(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The same run in two folders counts once: the folder that has more of it."""
    best: dict[str, Run] = {}
    notes = []
    for run in runs:
        settings = {key: value for key, value in run.config.items() if key not in FREE[1:]}
        identity = repr(sorted(settings.items())) + repr(sorted(run.fingerprint.items()))
        other = best.setdefault(identity, run)
        if other is not run:
            more, less = (run, other) if len(run.lines) > len(other.lines) else (other, run)
            best[identity] = more
            notes.append(f"{less.path} is the same run as {more.path}, and is left out.")
    return list(best.values()), notes


def _text(value: Any) -> str:
    """A value as one writes it; lists of lists have no other name than their text."""
    return "not set" if value is None else str(value)


def _rank(value: Any) -> tuple[int, float, str]:
    """Numbers by size; nothing, then texts in their order."""
    if isinstance(value, (int, float)):
        return 1, float(value), ""
    text = _text(value)
    return (0, 0.0, "") if text in ("none", "not set") else (2, 0.0, text)


def _naming(groups: Sequence[Sequence[Run]], differing: Sequence[str]) -> list[str]:
    """The keys that are needed to tell groups apart: not one that follows from another."""
    needed: list[str] = []
    for key in differing:
        pairs = {
            other: {(_text(g[0].config.get(other)), _text(g[0].config.get(key))) for g in groups}
            for other in needed
        }
        follows = any(len(seen) == len({a for a, _ in seen}) for seen in pairs.values())
        if key in FIRST or not follows:
            needed.append(key)
    return needed or list(FIRST)


def _arranged(groups: Sequence[list[Run]], keys: Sequence[str]) -> list[Series]:
    """The first key tells lines apart and the others panels, or as many of them as make few."""
    names = [[_part(key, runs[0].config.get(key)) for key in keys] for runs in groups]
    end = 1 if len(groups) == 1 else len(keys)  # the keys from 1 to here tell panels apart
    while len({tuple(parts[1:end]) for parts in names}) > MOST_PANELS:
        end -= 1
    lines = [_joined(parts[:1] + parts[end:]) for parts in names]
    colors = {line: number for number, line in enumerate(dict.fromkeys(lines))}
    return [
        Series(_joined(parts), line, _joined(parts[1:end]), colors[line], runs)
        for parts, line, runs in zip(names, lines, groups, strict=True)
    ]


def _part(key: str, value: Any) -> str:
    return _text(value) if key in FIRST else f"{key}={_text(value)}"


def _joined(parts: Sequence[str]) -> str:
    return " · ".join(parts)


def _unfinished(runs: Sequence[Run]) -> list[str]:
    return [
        f"{run.path} is unfinished: {len(run.lines)} of {run.rounds} rounds are shown."
        for run in runs
        if not run.finished
    ]


def _versions(runs: Sequence[Run]) -> list[str]:
    """Runs of other versions or machines may differ for that alone."""
    keys = ("fedro", "torch", "numpy", "python", "cpu", "device")
    seen = {key: sorted({_text(run.fingerprint.get(key)) for run in runs}) for key in keys}
    odd = [f"{key}: {', '.join(values)}" for key, values in seen.items() if len(values) > 1]
    return [f"The runs were not all made with the same versions ({'; '.join(odd)})."] if odd else []
