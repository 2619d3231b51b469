"""An adversary for rules: how large a κ can inputs be found for?

For S the first n−b rows (any other S is a permutation), climb ‖A(x) − mean(S)‖²/var(S) over the
inputs x. What is found is a lower bound on the rule's true κ: above a proved one, the proof or the
program is wrong.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedro.common.checks import count, number
from fedro.rules import Rule

Floats = NDArray[np.float64]
ROUNDING = 1e-6  # of the longest honest row: what a rule's own arithmetic may be off


@dataclass(frozen=True)
class Found:
    """The worst case an adversarial search came upon."""

    kappa: float
    updates: Floats = field(repr=False)  # (n, d); the last b rows are the bad ones
    evaluations: int


def search_kappa(
    rule: Callable[[Any], Any],
    n: int,
    b: int,
    *,
    seconds: float = 10.0,
    dimension: int = 2,
    seed: int = 0,
    enough: float = np.inf,
    progress: Callable[[float, float], None] | None = None,
) -> Found:
    """The largest ‖A − mean(S)‖²/var(S) that a hill climb finds for `rule`, any callable.

    Stops after `seconds`, or once the ratio is above `enough`; `progress` is told the share of the
    time that is used and the best ratio so far.
    """
    n, b = count("n", n, 1, 10_000), count("b", b, 0)
    if 2 * b >= n:
        raise ValueError(f"b={b} of n={n} rows: needs 2b < n")
    number("seconds", seconds, "0 < seconds", lambda x: x > 0)
    dimension = count("dimension", dimension, 1)
    climb = _Climb(rule, n, b, np.random.default_rng(count("seed", seed, 0)))
    climb.ratio(np.eye(n, dimension))  # a first call may import and compile: that is not searching
    start = time.monotonic()
    for _ in climb.steps(dimension):
        used = (time.monotonic() - start) / seconds
        if progress is not None:
            progress(min(1.0, used), climb.best)
        if used >= 1 or climb.best > enough:
            break
    return Found(climb.best, climb.worst, climb.evaluations)


class _Climb:
    """One search: the best inputs so far, and how to look for better ones."""

    def __init__(
        self, rule: Callable[[Any], Any], n: int, b: int, rng: np.random.Generator
    ) -> None:
        self.rule: Callable[[Any], Any] = partial(rule, b=b) if isinstance(rule, Rule) else rule
        self.n, self.b, self.rng = n, b, rng
        self.best, self.worst, self.evaluations = 0.0, np.zeros((n, 1)), 0

    def steps(self, dimension: int) -> Iterator[None]:
        """All the starts, then climbs from the best of them and from new ones, for ever."""
        pool = []
        for x in self.starts(dimension):
            pool.append((self.ratio(x), x))
            yield
        pool.sort(key=lambda pair: -pair[0])
        while True:
            rank = min(int(self.rng.exponential(3)), len(pool) - 1)
            value, x = pool[rank]
            for value, x in self.climb(value, x):  # noqa: B007, B020 (the last one stays)
                yield
            pool[rank] = (value, x)
            pool.sort(key=lambda pair: -pair[0])

    def climb(self, value: float, x: Floats, patience: int = 60) -> Iterator[tuple[float, Floats]]:
        """Keep every change that helps, until none of the last few did."""
        failures = 0
        while failures < patience:
            y = self.other_subset(x) if failures % 20 == 19 else self.changed(x)
            other = self.ratio(y)
            better = other > value
            failures = 0 if other > value * (1 + 1e-4) else failures + 1
            value, x = (other, y) if better else (value, x)
            yield value, x

    def ratio(self, x: Floats) -> float:
        """‖A(x) − mean(S)‖²/var(S), less what rounding explains; Inf where x holds too much."""
        self.evaluations += 1
        honest = x[: self.n - self.b]
        center = honest.mean(axis=0)
        output = np.asarray(self.rule(x.copy()), dtype=np.float64)
        if not np.isfinite(output).all():
            value = np.inf
        else:
            slack = ROUNDING * float(np.abs(honest).max())
            gap = max(0.0, float(np.linalg.norm(output - center)) - slack)
            variance = float(((honest - center) ** 2).sum(axis=1).mean())
            value = gap**2 / variance if variance > 0 else (np.inf if gap else 0.0)
        if value > self.best:
            self.best, self.worst = value, x
        return value

    def starts(self, d: int) -> Iterator[Floats]:
        """Inputs that are bad for some rule: two clusters, far rows, clouds."""
        n, b, rng = self.n, self.b, self.rng
        honest = n - b
        for ones in {b, max(1, b // 2), honest // 2, 1} & set(range(1, honest + 1)):
            for bad in (0.0, 1.0, 0.5, 2.0, -1.0, 1e3):
                x = np.zeros((n, d))
                x[:ones, 0], x[honest:, 0] = 1.0, bad
                yield x
        for scale in (0.0, 0.1, 1.0, 3.0, 30.0, 1e3, 1e5):
            x = rng.standard_normal((n, d))
            x[honest:] = x[:honest].mean(axis=0) + scale * rng.standard_normal(d)
            yield x
            yield x + 10.0

    def changed(self, x: Floats) -> Floats:
        """A copy with some rows moved, copied or pulled together."""
        y, rng = x.copy(), self.rng
        size = 10.0 ** rng.uniform(-4, 0.7) * (np.std(y[: self.n - self.b]) or 1.0)
        kind = rng.integers(5)
        rows = rng.choice(self.n, size=rng.integers(1, 4), replace=True)
        if kind == 0:  # all bad rows move together
            y[self.n - self.b :] += size * rng.standard_normal(x.shape[1])
        elif kind == 1:
            y[rows] += size * rng.standard_normal(x.shape[1])
        elif kind == 2:
            y[rows] = y[rng.integers(self.n)]
        elif kind == 3:  # towards the honest mean, or away from it
            center = y[: self.n - self.b].mean(axis=0)
            y[rows] = center + (y[rows] - center) * 2.0 ** rng.uniform(-2, 1)
        else:
            y[rows, rng.integers(x.shape[1])] += size * rng.standard_normal()
        return y

    def other_subset(self, x: Floats) -> Floats:
        """The same rows in another order, so that other ones are the honest ones."""
        output = np.asarray(self.rule(x.copy()), dtype=np.float64)
        direction = output - x.mean(axis=0)
        if self.rng.random() < 0.5:
            direction = self.rng.standard_normal(x.shape[1])
        return np.asarray(x[np.argsort(x @ direction, kind="stable")])
