"""Search for the strength at which an attack moves the aggregate furthest.

A rule that selects rows follows a message until the message is too far off, and then drops it, all
copies at once or one by one. The best strength lies right before such a cliff, where no grid is
fine enough. The search starts with a grid on both sides of zero. Where the message's share of the
rule's output is known, it bisects between two strengths at which the share falls, and looks around
the highest cliff. Otherwise it scans around the highest points of the grid. A golden-section search
ends it.
"""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

OCTAVES = (-6, 10)  # the grid reaches from 1/64 of the scale to 1,024 times the scale
STEPS_PER_OCTAVE = 4  # of the grid where the message's share is not known
MAX_PEAKS = 3  # this many points of the grid are refined,
MIN_PEAK = 0.5  # if they reach this fraction of the highest
KEPT_SHARE = 0.9  # the message's share has fallen if less than this fraction of it is left
HALVINGS = 8  # of an octave with a cliff
BEYOND_CLIFF = 1.25  # times a cliff's strength: up to there a rule may accept the message again
SCAN_POINTS = 15  # between two strengths
MAX_SECTIONS = 14  # of a golden-section search: down to a thousandth of the interval
FLAT = 1e-3  # relative difference over a tenth of the way to zero that ends the search
GOLDEN = (math.sqrt(5) - 1) / 2


class Response(NamedTuple):
    """How the rule responds to a message of some strength."""

    distance: float  # ‖A − ḡ‖, from the aggregate to the honest mean
    strength: float
    share: float | None = None  # weight of the message in the aggregate, if it is known


Curve = Callable[[float], Response]  # strength -> response
Bracket = tuple[Response, Response, Response]  # a high point between its neighbors


def _distance(response: Response) -> float:
    return response.distance


def find_peaks(curve: Curve, scale: float, steps: int = 1) -> list[Response]:
    """Return the highest responses around peaks of a grid and at cliffs, the highest first.

    Args:
        curve: The response to a strength.
        scale: A strength of usual size; the grid is relative to it.
        steps: Points of the grid per octave.
    """
    strengths = scale * 2.0 ** np.arange(OCTAVES[0], OCTAVES[1] + 1 / steps, 1 / steps)
    positive, negative = ([curve(sign * float(t)) for t in strengths] for sign in (1, -1))
    peaks = [cliff for side in (positive, negative) for cliff in find_cliffs(curve, side)]
    for cliff in sorted(peaks, key=_distance)[-1:]:
        around = curve(cliff.strength / BEYOND_CLIFF), cliff, curve(cliff.strength * BEYOND_CLIFF)
        peaks.append(golden_section(curve, *scan(curve, around)))
    for bracket in grid_peaks([*reversed(negative), *positive]):
        known = bracket[1].share is not None
        peaks.append(golden_section(curve, *(bracket if known else scan(curve, bracket))))
    return sorted(peaks, key=_distance, reverse=True)


def grid_peaks(grid: list[Response]) -> Iterator[Bracket]:
    """Yield the highest local maxima of a grid, each with its neighbors."""
    distances = np.array([response.distance for response in grid])
    padded = np.concatenate([[-math.inf], distances, [-math.inf]])
    maxima = np.flatnonzero((distances >= padded[:-2]) & (distances >= padded[2:]))
    maxima = maxima[np.argsort(-distances[maxima], kind="stable")][:MAX_PEAKS]
    for k in maxima[distances[maxima] >= MIN_PEAK * distances.max()].tolist():
        yield grid[max(k - 1, 0)], grid[k], grid[min(k + 1, len(grid) - 1)]


def find_cliffs(curve: Curve, side: list[Response]) -> Iterator[Response]:
    """Yield the last responses before the message's share falls, where they may be high."""
    highest, smooth = max(response.distance for response in side), False
    for before, after in pairwise(side):
        smooth, was_smooth = decays_smoothly(before, after), smooth
        if not (smooth and was_smooth):  # one smooth octave may be chance, two are not
            yield from bisect_cliffs(curve, before, after, highest, HALVINGS)


def bisect_cliffs(
    curve: Curve, before: Response, after: Response, highest: float, halvings: int
) -> Iterator[Response]:
    """Yield the cliffs between two strengths, located by repeated halving."""
    reachable = before.distance * after.strength / before.strength
    if not share_falls(before, after) or reachable < highest:
        return  # the distance grows no faster than the strength
    if not halvings:
        yield before
        return
    middle = curve((before.strength + after.strength) / 2)
    if decays_smoothly(before, middle):
        return
    highest = max(highest, middle.distance)
    yield from bisect_cliffs(curve, before, middle, highest, halvings - 1)
    yield from bisect_cliffs(curve, middle, after, highest, halvings - 1)


def share_falls(before: Response, after: Response) -> bool:
    """Return whether the message has clearly lost weight in the aggregate."""
    if before.share is None or after.share is None:
        return False
    return after.share < KEPT_SHARE * before.share


def decays_smoothly(before: Response, after: Response) -> bool:
    """Return whether the share falls as 1/strength, as weights 1/distance do: without a cliff."""
    if not before.share or after.share is None or after.share > KEPT_SHARE * before.share:
        return False
    return math.isclose(after.share * after.strength, before.share * before.strength, rel_tol=0.05)


def scan(curve: Curve, bracket: Bracket) -> Bracket:
    """Return the highest of evenly spaced points within a bracket, with its neighbors."""
    strengths = np.linspace(bracket[0].strength, bracket[2].strength, SCAN_POINTS + 2)[1:-1]
    points = [*bracket, *(curve(float(t)) for t in strengths)]
    points.sort(key=lambda response: response.strength)
    k = max(range(len(points)), key=lambda k: points[k].distance)
    return points[max(k - 1, 0)], points[k], points[min(k + 1, len(points) - 1)]


def golden_section(
    curve: Curve,
    before: Response,
    best: Response,
    after: Response,
    sections: int = MAX_SECTIONS,
) -> Response:
    """Search the maximum between two strengths by golden sections.

    The result is the highest response seen, `best` included, whatever the curve's shape.
    """
    left, right = before.strength, after.strength
    low = curve(right - GOLDEN * (right - left))
    high = curve(left + GOLDEN * (right - left))
    for _ in range(sections):
        best = max(best, low, high, key=_distance)
        narrow = abs(right - left) < 0.1 * abs(best.strength)
        if narrow and min(low.distance, high.distance) >= (1 - FLAT) * best.distance:
            break
        if low.distance >= high.distance:
            right, high = high.strength, low
            low = curve(right - GOLDEN * (right - left))
        else:
            left, low = low.strength, high
            high = curve(left + GOLDEN * (right - left))
    return max(best, low, high, key=_distance)
