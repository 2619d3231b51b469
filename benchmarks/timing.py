"""Timing on a noisy machine: candidates take turns with the unit that they are compared with."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

Action = Callable[[], object]


class Timed(NamedTuple):
    """The time that an action takes."""

    seconds: float  # the shortest time
    units: float  # the median of its ratios to the unit


def once(action: Action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def least(action: Action) -> float:
    """The shortest of three calls: during the first, threads of the last action may still spin."""
    return min(once(action) for _ in range(3))


def measure(unit: Action, actions: Mapping[str, Action], times: int) -> dict[str, Timed]:
    """Time each action several times, in turns, with the unit right before and after it.

    On a shared machine, memory can be twice as fast for some seconds. A ratio of two minima would
    compare different moments.
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
    timed = {name: Timed(min(seconds[name]), statistics.median(ratios[name])) for name in actions}
    return {"unit": Timed(min(seconds["unit"]), 1.0), **timed}
