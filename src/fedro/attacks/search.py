"""The largest value of a function of one number: a grid on both sides of zero, then sections."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Function = Callable[[float], float]

OCTAVES = (-6, 10)  # from a sixty-fourth of the scale to a thousand times it
PEAKS = 3  # of the grid that are looked at closely,
HIGH = 0.5  # if they are this share of the highest
SECTIONS = 14  # at most: a thousandth of the interval
FLAT = 1e-3  # where values differ by less, over a tenth of the way to zero, no more is to gain
GOLDEN = (math.sqrt(5) - 1) / 2


class Peak(NamedTuple):
    """A value, and where it is reached."""

    value: float
    at: float


def peaks(function: Function, scale: float) -> list[Peak]:
    """The highest points found around the highest of the grid, the best first."""
    sizes = scale * 2.0 ** np.arange(OCTAVES[0], OCTAVES[1] + 1)
    grid = np.concatenate([-sizes[::-1], sizes])
    values = np.array([function(float(t)) for t in grid])
    around = np.concatenate([[-math.inf], values, [-math.inf]])
    tops = np.flatnonzero((values >= around[:-2]) & (values >= around[2:]))
    tops = tops[np.argsort(-values[tops], kind="stable")][:PEAKS]
    found = []
    for k in tops[values[tops] >= HIGH * values.max()].tolist():
        ends = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
        start = Peak(float(values[k]), float(grid[k]))
        found.append(climb(function, float(ends[0]), float(ends[1]), start))
    return sorted(found, reverse=True)


def climb(
    function: Function, left: float, right: float, best: Peak, sections: int = SECTIONS
) -> Peak:
    """Golden sections; the highest point seen, `best` included, whatever the function's shape."""
    a, b = right - GOLDEN * (right - left), left + GOLDEN * (right - left)
    low, high = Peak(function(a), a), Peak(function(b), b)
    for _ in range(sections):
        best = max(best, low, high)
        near = right - left < 0.1 * abs(best.at)
        if near and min(low.value, high.value) >= (1 - FLAT) * best.value:
            break
        if low.value >= high.value:
            right, high = high.at, low
            a = right - GOLDEN * (right - left)
            low = Peak(function(a), a)
        else:
            left, low = low.at, high
            b = left + GOLDEN * (right - left)
            high = Peak(function(b), b)
    return max(best, low, high)
