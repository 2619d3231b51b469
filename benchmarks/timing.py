"""Timing that noise disturbs little: the best of several, all candidates taking turns."""

import time
from collections.abc import Callable, Mapping


def once(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def best_of(actions: Mapping[str, Callable[[], object]], times: int) -> dict[str, float]:
    """The least time of each action in seconds; they take turns, so a bad moment hits all alike.

    Each turn is three calls: the threads of the action before may still spin during the first.
    """
    best = dict.fromkeys(actions, float("inf"))
    for _ in range(times):
        for name, action in actions.items():
            best[name] = min(best[name], *(once(action) for _ in range(3)))
    return best
