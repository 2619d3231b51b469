"""The strength at which an attack is worst: a grid on both sides of zero, cliffs, then sections.

A rule that selects rows follows a message until it is too far off, and then drops it, at once or
copy by copy: the best strength lies right before such a cliff, where no grid is fine enough. Where
the message's share of the output is known, cliffs are looked for between two strengths where it
falls, and around the highest; else the surroundings of the grid's highest points are scanned.
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
FALL = 0.9  # the message's share has fallen if less than this is left of it
HALVINGS = 8  # of an octave with cliffs
BEYOND = 1.25  # times an edge, up to which a rule may take the message in once more
SCAN = 15  # points around the highest edge and, where the share is not known, the highest of a grid
SECTIONS = 14  # at most: a thousandth of the interval
FLAT = 1e-3  # where values differ by less, over a tenth of the way to zero, no more is to gain
GOLDEN = (math.sqrt(5) - 1) / 2


class Look(NamedTuple):
    """What a strength comes to."""

    value: float
    at: float
    share: float | None = None  # of the message in the rule's output, if that is known


Function = Callable[[float], Look]
Near = tuple[Look, Look, Look]  # a high point, between its neighbors


def _value(look: Look) -> float:
    return look.value


def peaks(function: Function, scale: float, steps: int = 1) -> list[Look]:
    """The highest points found around the highest of a grid and at cliffs, the best first."""
    sizes = scale * 2.0 ** np.arange(OCTAVES[0], OCTAVES[1] + 1 / steps, 1 / steps)
    right, left = ([function(sign * float(t)) for t in sizes] for sign in (1, -1))
    found = [edge for side in (right, left) for edge in cliffs(function, side)]
    for edge in sorted(found, key=_value)[-1:]:
        near = function(edge.at / BEYOND), edge, function(edge.at * BEYOND)
        found.append(climb(function, *scan(function, near)))
    for near in tops([*reversed(left), *right]):
        known = near[1].share is not None
        found.append(climb(function, *(near if known else scan(function, near))))
    return sorted(found, key=_value, reverse=True)


def tops(grid: list[Look]) -> Iterator[Near]:
    """The highest points of a grid that are higher than their neighbors, with these."""
    values = np.array([look.value for look in grid])
    outer = np.concatenate([[-math.inf], values, [-math.inf]])
    found = np.flatnonzero((values >= outer[:-2]) & (values >= outer[2:]))
    found = found[np.argsort(-values[found], kind="stable")][:PEAKS]
    for k in found[values[found] >= HIGH * values.max()].tolist():
        yield grid[max(k - 1, 0)], grid[k], grid[min(k + 1, len(grid) - 1)]


def cliffs(function: Function, side: list[Look]) -> Iterator[Look]:
    """The last points before the message's share falls, where they may be high."""
    highest, smooth = max(look.value for look in side), False
    for before, after in pairwise(side):
        smooth, known = slopes(before, after), smooth
        if not (smooth and known):  # as in the octave before: no edge comes twice by chance
            yield from edges(function, before, after, highest, HALVINGS)


def edges(
    function: Function, before: Look, after: Look, highest: float, halvings: int
) -> Iterator[Look]:
    """The same between two points."""
    if not falls(before, after) or before.value * after.at / before.at < highest:
        return  # the value grows no faster than the strength
    if not halvings:
        yield before
        return
    middle = function((before.at + after.at) / 2)
    if slopes(before, middle):
        return
    highest = max(highest, middle.value)
    yield from edges(function, before, middle, highest, halvings - 1)
    yield from edges(function, middle, after, highest, halvings - 1)


def falls(before: Look, after: Look) -> bool:
    """Is less of the message's share left?"""
    if before.share is None or after.share is None:
        return False
    return after.share < FALL * before.share


def slopes(before: Look, middle: Look) -> bool:
    """Does the share fall as one over the strength, as weights 1/distance do? Then with no edge."""
    if not before.share or middle.share is None or middle.share > FALL * before.share:
        return False
    return math.isclose(middle.share * middle.at, before.share * before.at, rel_tol=0.05)


def scan(function: Function, near: Near) -> Near:
    """The highest of more points between the outer ones, between its neighbors."""
    sizes = np.linspace(near[0].at, near[2].at, SCAN + 2)[1:-1]
    points = sorted([*near, *(function(float(t)) for t in sizes)], key=lambda look: look.at)
    k = max(range(len(points)), key=lambda k: points[k].value)
    return points[max(k - 1, 0)], points[k], points[min(k + 1, len(points) - 1)]


def climb(
    function: Function, before: Look, best: Look, after: Look, sections: int = SECTIONS
) -> Look:
    """Golden sections; the highest point seen, `best` included, whatever the function's shape."""
    left, right = before.at, after.at
    low = function(right - GOLDEN * (right - left))
    high = function(left + GOLDEN * (right - left))
    for _ in range(sections):
        best = max(best, low, high, key=_value)
        near = abs(right - left) < 0.1 * abs(best.at)
        if near and min(low.value, high.value) >= (1 - FLAT) * best.value:
            break
        if low.value >= high.value:
            right, high = high.at, low
            low = function(right - GOLDEN * (right - left))
        else:
            left, low = low.at, high
            high = function(left + GOLDEN * (right - left))
    return max(best, low, high, key=_value)
