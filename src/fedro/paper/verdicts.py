"""Confidence intervals over a few seeds, and the verdicts that follow from them."""

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.stats import binomtest, t

from fedro.paper.figure import ATTACKS, Row, Verdict

LEVEL = 0.95


class Interval(NamedTuple):
    """A mean with its 95% confidence interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        spread = self.high - self.mean
        width = f" ± {100 * spread:.1f}" if math.isfinite(spread) else " (one seed)"
        return f"{100 * self.mean:+.1f}{width} points"


def interval(values: Collection[float], cases: int = 1) -> Interval:
    """Student's interval, widened (Bonferroni) if it is one of several cases that may decide.

    The interval of a single value is infinite.
    """
    mean = fmean(values)
    if len(values) < 2:
        return Interval(mean, -math.inf, math.inf)
    level = 1 - (1 - LEVEL) / cases
    half = float(t.ppf((1 + level) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def verdict_above_zero(difference: Interval | None) -> Verdict:
    """Whether a difference is above zero."""
    if difference is None:
        return "undecided"
    return "held" if difference.low > 0 else "not held" if difference.high < 0 else "undecided"


def verdict_all_above(cases: Collection[Mapping[int, float]], limit: float = 0.0) -> Verdict:
    """Whether the differences are above a limit in every case.

    It is held if all intervals are above the limit, and not held if one is entirely below.
    """
    known = [differences.values() for differences in cases if differences]
    if any(interval(values, cases=len(cases)).high < limit for values in known):
        return "not held"
    sure = len(known) == len(cases) > 0 and all(interval(values).low > limit for values in known)
    return "held" if sure else "undecided"


def mean_difference(cases: Collection[Mapping[int, float]]) -> Interval | None:
    """The mean over several cases, for the seeds that all of them have; None without any."""
    seeds = set.intersection(*(set(differences) for differences in cases)) if cases else set()
    means = [fmean(differences[seed] for differences in cases) for seed in sorted(seeds)]
    return interval(means) if means else None


def paired_differences(
    rows: Sequence[Row], first: Row, second: Row, key: str = "accuracy"
) -> dict[int, float]:
    """second − first for each seed that has both."""
    minuend, subtrahend = (
        {row["seed"]: row[key] for row in rows if matches(row, settings)}
        for settings in (second, first)
    )
    return {
        seed: minuend[seed] - subtrahend[seed]
        for seed in minuend
        if subtrahend.get(seed) is not None and minuend[seed] is not None
    }


def matches(row: Row, settings: Row) -> bool:
    """Whether a row has these settings."""
    return all(row.get(key) == value for key, value in settings.items())


def binomial_p_value(count: int, trials: int, probability: float) -> float:
    """The two-sided p-value of a count, if each trial succeeds with this probability."""
    return float(binomtest(count, trials, min(max(probability, 0.0), 1.0)).pvalue)


def format_differences(differences: Mapping[str, Mapping[int, float]]) -> str:
    """The difference under each attack, as text."""
    return "; ".join(
        f"{ATTACKS[attack]} {interval(by_seed.values()) if by_seed else 'no pairs'}"
        for attack, by_seed in differences.items()
    )
