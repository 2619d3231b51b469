"""Metrics that clients claim, put together so that b̂ liars cannot move them past honest values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Spread(NamedTuple):
    """A trimmed mean, and the least and greatest of the values that it is the mean of.

    With at most b̂ liars, each of the three lies between two honest values.
    """

    value: float
    low: float
    high: float
    replies: int

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def robust_mean(values: Sequence[float], tolerated: int) -> Spread | None:
    """The mean without the b̂ least and the b̂ greatest values; None with 2b̂ values or fewer.

    >>> str(robust_mean([0.7, 0.9, 0.8, 1e9], tolerated=1))
    '0.85 [0.8, 0.9]'
    """
    count = len(values)
    if count <= 2 * tolerated:
        return None
    kept = np.sort(np.asarray(values, dtype=np.float64))[tolerated : count - tolerated]
    mean = np.clip((kept / len(kept)).sum(), kept[0], kept[-1])  # no sum that overflows
    return Spread(float(mean), float(kept[0]), float(kept[-1]), count)


def robust_metrics(replies: Iterable[Mapping[str, float]], tolerated: int) -> dict[str, Spread]:
    """Each metric that more than 2b̂ replies hold: no liars can bring up one of their own."""
    values: dict[str, list[float]] = {}
    for reply in replies:
        for name, value in reply.items():
            values.setdefault(name, []).append(value)
    found = {name: robust_mean(values[name], tolerated) for name in sorted(values)}
    return {name: spread for name, spread in found.items() if spread is not None}


def flat(metrics: Mapping[str, Spread]) -> dict[str, float]:
    """As a metric record: each metric under its name, its spread under name-low and name-high."""
    return {
        key: number
        for name, spread in metrics.items()
        for key, number in (
            (name, spread.value),
            (f"{name}-low", spread.low),
            (f"{name}-high", spread.high),
        )
    }
