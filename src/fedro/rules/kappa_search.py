"""An adversary for rules: it searches for the inputs for which a rule errs most.

Let S be the first n−b rows (any other S is a permutation). The search maximizes the ratio
‖A(x) − mean(S)‖²/var(S) over the inputs x by hill climbing. The result is a lower bound on the
rule's true κ. If it is above a proved κ, the proof or the program is wrong.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedro.common.checks import count, number
from fedro.rules import Rule, parse_rule

Floats = NDArray[np.float64]
ROUNDING = 1e-6  # error of a rule's own arithmetic, in units of the largest honest value
FAILURES_BEFORE_STOP = 60  # changes in a row that do not help, after which a climb ends


@dataclass(frozen=True)
class WorstCase:
    """The worst inputs that `search_kappa` came upon.

    Attributes:
        kappa: The largest ratio, a lower bound on the rule's true κ.
        updates: The inputs (n, d) that attain it; the last b rows are the Byzantine ones.
        evaluations: Number of inputs that were tried.

    Example:
        >>> worst = search_kappa("mean", n=5, b=1, seconds=5, enough=100.0)
        >>> len(worst.updates)
        5
    """

    kappa: float
    updates: Floats = field(repr=False)
    evaluations: int


Found = WorstCase  # an alias, so that programs that use `fedro.Found` keep working


def search_kappa(
    rule: str | Rule | Callable[[Any], Any],
    n: int,
    b: int,
    *,
    seconds: float = 10.0,
    dimension: int = 2,
    seed: int = 0,
    enough: float = np.inf,
    progress: Callable[[float, float], None] | None = None,
) -> WorstCase:
    """Search for the inputs for which a rule errs most, as a lower bound on its κ.

    Args:
        rule: A rule, its text like ``"nnm | trimmed_mean"``, or any function that maps a matrix
            (n, d) to a vector (d,).
        n: Number of rows.
        b: Number of Byzantine rows among them, less than half. It replaces the rule's own b.
        seconds: Time for the search.
        dimension: Number of columns d.
        seed: Seed of the search.
        enough: Stop as soon as the ratio is above this.
        progress: Called with the share of the time that is used and the largest ratio so far.

    Returns:
        The largest ratio ‖A(x) − mean(S)‖²/var(S) and the inputs x that attain it.

    Raises:
        ValueError: An argument is out of its range, or the text is not a rule.

    Example:
        >>> worst = search_kappa("mean", n=5, b=1, seconds=5, enough=100.0)
        >>> worst.kappa > 100, worst.updates.shape
        (True, (5, 2))
    """
    n, b = count("n", n, 1, 10_000), count("b", b, 0)
    if 2 * b >= n:
        raise ValueError(f"b={b} of n={n} rows: needs 2b < n")
    number("seconds", seconds, "0 < seconds", lambda x: x > 0)
    dimension = count("dimension", dimension, 1)
    if isinstance(rule, str | Rule):
        rule = partial(parse_rule(rule), b=b)
    climb = _Climb(rule, n, b, np.random.default_rng(count("seed", seed, 0)))
    climb.ratio(np.eye(n, dimension))  # the first call may import and compile, which is not counted
    start = time.monotonic()
    for _ in climb.steps(dimension):
        used = (time.monotonic() - start) / seconds
        if progress is not None:
            progress(min(1.0, used), climb.best)
        if used >= 1 or climb.best > enough:
            break
    return WorstCase(climb.best, climb.worst, climb.evaluations)


class _Climb:
    """One search: the worst inputs so far, and how to change them."""

    def __init__(
        self, rule: Callable[[Any], Any], n: int, b: int, rng: np.random.Generator
    ) -> None:
        self.rule, self.n, self.b, self.rng = rule, n, b, rng
        self.best, self.worst, self.evaluations = 0.0, np.zeros((n, 1)), 0

    def steps(self, dimension: int) -> Iterator[None]:
        """Try all starting points, then climb from one of the best of them, again and again."""
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

    def climb(self, value: float, x: Floats) -> Iterator[tuple[float, Floats]]:
        """Change x and keep what helps, until FAILURES_BEFORE_STOP changes in a row did not."""
        failures = 0
        while failures < FAILURES_BEFORE_STOP:
            y = self.other_subset(x) if failures % 20 == 19 else self.changed(x)
            other = self.ratio(y)
            better = other > value
            failures = 0 if other > value * (1 + 1e-4) else failures + 1
            value, x = (other, y) if better else (value, x)
            yield value, x

    def ratio(self, x: Floats) -> float:
        """Return ‖A(x) − mean(S)‖²/var(S) without rounding errors; Inf if A(x) is not finite."""
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
        """Yield inputs that are hard for some rule: two clusters, far rows, clouds."""
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
        """Return a copy with some rows moved, copied or pulled together."""
        y, rng = x.copy(), self.rng
        size = 10.0 ** rng.uniform(-4, 0.7) * (np.std(y[: self.n - self.b]) or 1.0)
        kind = rng.integers(5)
        rows = rng.choice(self.n, size=rng.integers(1, 4), replace=True)
        if kind == 0:  # all Byzantine rows move together
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
        """Return the same rows in another order, so that other ones count as honest."""
        output = np.asarray(self.rule(x.copy()), dtype=np.float64)
        direction = output - x.mean(axis=0)
        if self.rng.random() < 0.5:
            direction = self.rng.standard_normal(x.shape[1])
        return np.asarray(x[np.argsort(x @ direction, kind="stable")])
