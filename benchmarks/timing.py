"""Timing that noise disturbs little: candidates take turns, beside what they are compared with."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

Action = Callable[[], object]


class Timed(NamedTuple):
    """How long an action takes."""

    seconds: float  # the least
    units: float  # the median of its ratios to the unit


def once(action: Action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def least(action: Action) -> float:
    """Of three calls: the threads of the action before may still spin during the first."""
    return min(once(action) for _ in range(3))


def measure(unit: Action, actions: Mapping[str, Action], times: int) -> dict[str, Timed]:
    """Time each action several times, in turns, and each time the unit right before and after.

    On a shared machine the memory is twice as fast for some seconds, so a ratio of the least of
    each would compare one moment with another.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ["unit", *actions]}
    ratios: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(times):
        before = least(unit)
        for name, action in actions.items():
            own, after = least(action), least(unit)
            seconds[name].append(own)
            seconds["unit"].append(after)
            ratios[name].append(2 * own / (before + after))
            before = after
    found = {name: Timed(min(seconds[name]), statistics.median(ratios[name])) for name in actions}
    return {"unit": Timed(min(seconds["unit"]), 1.0), **found}
