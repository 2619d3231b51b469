"""What numbers from a few seeds can say, and what they cannot."""

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.stats import binomtest, t

from fedro.paper.study import Row, Verdict

LEVEL = 0.95


class Interval(NamedTuple):
    """A mean, and where the true one is with confidence 95%."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        spread = self.high - self.mean
        width = f" ± {100 * spread:.1f}" if math.isfinite(spread) else " (one seed)"
        return f"{100 * self.mean:+.1f}{width} points"


def interval(values: Collection[float], cases: int = 1) -> Interval:
    """Student's interval, wider if it is one of several cases of which any may decide.

    A single value says nothing about how far it may be off.
    """
    mean = fmean(values)
    if len(values) < 2:
        return Interval(mean, -math.inf, math.inf)
    level = 1 - (1 - LEVEL) / cases
    half = float(t.ppf((1 + level) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def sign(found: Interval | None) -> Verdict:
    """Whether it is above zero."""
    if found is None:
        return "undecided"
    return "held" if found.low > 0 else "not held" if found.high < 0 else "undecided"


def all_above(cases: Collection[Mapping[int, float]], limit: float = 0.0) -> Verdict:
    """Whether every difference is above a limit: held if all are sure to be, not if one is not."""
    known = [found.values() for found in cases if found]
    if any(interval(found, cases=len(cases)).high < limit for found in known):
        return "not held"
    sure = len(known) == len(cases) > 0 and all(interval(found).low > limit for found in known)
    return "held" if sure else "undecided"


def averaged(differences: Collection[Mapping[int, float]]) -> Interval | None:
    """The mean of several differences over the seeds that all of them have; None without any."""
    seeds = set.intersection(*(set(found) for found in differences)) if differences else set()
    means = [fmean(found[seed] for found in differences) for seed in sorted(seeds)]
    return interval(means) if means else None


def paired(rows: Sequence[Row], first: Row, second: Row, key: str = "accuracy") -> dict[int, float]:
    """second − first for each seed that both have."""
    ours, theirs = (
        {row["seed"]: row[key] for row in rows if matches(row, wanted)}
        for wanted in (second, first)
    )
    return {
        seed: ours[seed] - theirs[seed]
        for seed in ours
        if theirs.get(seed) is not None and ours[seed] is not None
    }


def matches(row: Row, wanted: Row) -> bool:
    """Whether a row has these settings."""
    return all(row.get(key) == value for key, value in wanted.items())


def chance_of(count: int, trials: int, probability: float) -> float:
    """How likely a count at least as odd as this one is, if each trial has this probability."""
    return float(binomtest(count, trials, min(max(probability, 0.0), 1.0)).pvalue)
