"""The strength at which an attack is worst: a grid on both sides of zero, cliffs, then sections.

A rule that selects rows follows a message until it is too far off, and then drops it: the best
strength lies right before such a cliff, where no grid is fine enough. It shows in the message's
share of the output, so it is looked for between two strengths where that falls.
"""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

OCTAVES = (-6, 10)  # from a sixty-fourth of the scale to a thousand times it
FINE = 4  # steps in an octave where the share is not known
PEAKS = 3  # of the grid that are looked at closely,
HIGH = 0.5  # if they are this share of the highest
HALVINGS = 8  # of an octave with a cliff
SECTIONS = 14  # at most: a thousandth of the interval
FLAT = 1e-3  # where values differ by less, over a tenth of the way to zero, no more is to gain
GOLDEN = (math.sqrt(5) - 1) / 2


class Look(NamedTuple):
    """What a strength comes to."""

    value: float
    at: float
    share: float | None = None  # of the message in the rule's output, if that is known


Function = Callable[[float], Look]


def peaks(function: Function, scale: float, steps: int = 1) -> list[Look]:
    """The highest points found around the highest of a grid, the best first."""
    sizes = scale * 2.0 ** np.arange(OCTAVES[0], OCTAVES[1] + 1 / steps, 1 / steps)
    right, left = ([function(sign * float(t)) for t in sizes] for sign in (1, -1))
    found = [edge for side in (right, left) for edge in cliffs(function, side)]
    grid = [*reversed(left), *right]
    values = np.array([look.value for look in grid])
    around = np.concatenate([[-math.inf], values, [-math.inf]])
    tops = np.flatnonzero((values >= around[:-2]) & (values >= around[2:]))
    tops = tops[np.argsort(-values[tops], kind="stable")][:PEAKS]
    for k in tops[values[tops] >= HIGH * values.max()].tolist():
        ends = grid[max(k - 1, 0)].at, grid[min(k + 1, len(grid) - 1)].at
        found.append(climb(function, *ends, grid[k]))
    return sorted(found, key=lambda look: look.value, reverse=True)


def cliffs(function: Function, side: list[Look]) -> Iterator[Look]:
    """The last point before the message's share falls to less than half, where it does."""
    highest = max(look.value for look in side)
    for before, after in pairwise(side):
        if before.share is None or after.share is None or after.share > before.share / 2:
            continue
        if before.value * after.at / before.at < highest:  # it grows no faster than the strength
            continue
        beyond = after.at
        for _ in range(HALVINGS):
            middle = function((before.at + beyond) / 2)
            if slopes(before, middle):
                break
            if middle.share is not None and middle.share > before.share / 2:
                before = middle
            else:
                beyond = middle.at
        yield before


def slopes(before: Look, middle: Look) -> bool:
    """Does the share fall as one over the strength, as weights 1/distance do? Then with no edge."""
    if not before.share or middle.share is None or middle.share > 0.9 * before.share:
        return False
    return math.isclose(middle.share * middle.at, before.share * before.at, rel_tol=0.05)


def climb(
    function: Function, left: float, right: float, best: Look, sections: int = SECTIONS
) -> Look:
    """Golden sections; the highest point seen, `best` included, whatever the function's shape."""
    low = function(right - GOLDEN * (right - left))
    high = function(left + GOLDEN * (right - left))
    for _ in range(sections):
        best = max(best, low, high, key=lambda look: look.value)
        near = abs(right - left) < 0.1 * abs(best.at)
        if near and min(low.value, high.value) >= (1 - FLAT) * best.value:
            break
        if low.value >= high.value:
            right, high = high.at, low
            low = function(right - GOLDEN * (right - left))
        else:
            left, low = low.at, high
            high = function(left + GOLDEN * (right - left))
    return max(best, low, high, key=lambda look: look.value)
