"""Exact tails of the binomial and hypergeometric distributions, for populations from 1 to 10⁹.

`scipy.stats` gives the same numbers, but importing it takes longer than `fedro plan` may run. The
tests compare this module with it and with exact fractions. All functions work with logarithms, so a
probability of 10⁻³⁰⁰ is as exact as one of ½.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

Ratio = Callable[[Any], Any]  # of a number or of an array of numbers
_TERMS_WITHOUT_NUMPY = 64


@lru_cache(maxsize=4096)
def _stirling_error(x: int) -> float:
    """ln x! − ln(√(2πx)·(x/e)ˣ), computed without cancellation."""
    if x < 16:
        return math.log(math.factorial(x)) - (x + 0.5) * math.log(x) + x - _HALF_LOG_2PI
    s = 1.0 / (x * x)
    return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - s / 1188) * s) * s) * s) / x


def deviance(x: float, mean: float) -> float:
    """x·ln(x/mean) + mean − x, without cancellation near x = mean (Loader 2000)."""
    gap = x - mean
    if x == 0:
        return mean
    if abs(gap) >= 0.1 * (x + mean):
        return x * math.log(x / mean) - gap
    v = gap / (x + mean)
    total, term, j = gap * v, 2 * x * v, 0
    while True:
        j += 1
        term *= v * v
        larger = total + term / (2 * j + 1)
        if larger == total:
            return total
        total = larger


def binomial_log_pmf(k: int, n: int, p: float) -> float:
    """ln P[X = k] for X ~ Bin(n, p)."""
    if not 0 <= k <= n:
        return -math.inf
    if p in (0.0, 1.0):
        return 0.0 if k == n * p else -math.inf
    if k == 0:
        return n * math.log1p(-p)
    if k == n:
        return n * math.log(p)
    errors = _stirling_error(n) - _stirling_error(k) - _stirling_error(n - k)
    deviances = deviance(k, n * p) + deviance(n - k, n * (1 - p))
    return errors - deviances - _HALF_LOG_2PI - 0.5 * (math.log(k) + math.log1p(-k / n))


def hypergeometric_log_pmf(k: int, population: int, marked: int, drawn: int) -> float:
    """ln P[X = k] for X marked ones among `drawn`, drawn without replacement from `population`."""
    if not max(0, drawn + marked - population) <= k <= min(drawn, marked):
        return -math.inf
    p = drawn / population
    return (
        binomial_log_pmf(k, marked, p)
        + binomial_log_pmf(drawn - k, population - marked, p)
        - binomial_log_pmf(drawn, population, p)
    )


def _log_sum(log_first: float, ratio: Ratio, steps: range) -> float:
    """ln(first · (1 + ratio(s₀) + ratio(s₀)·ratio(s₁) + …)): a sum of falling terms.

    `ratio(x)` is the next term divided by the term at x. Terms below 10⁻¹⁸ of the sum are left out.
    """
    total = last = 1.0
    for x in steps[:_TERMS_WITHOUT_NUMPY]:
        last *= ratio(x)
        total += last
        if last < 1e-18 * total:
            break
    else:
        rest = steps[_TERMS_WITHOUT_NUMPY:]
        total += _sum_many(last, ratio, rest) if rest else 0.0
    return log_first + math.log(total)


def _sum_many(last: float, ratio: Ratio, steps: range) -> float:
    """Sum the terms after `last` in chunks. Imports NumPy, which few terms do not need."""
    import numpy as np

    total, position, size = 0.0, 0, 256
    while position < len(steps) and last > 1e-18 * total:
        chunk = steps[position : position + size]
        x = np.arange(chunk.start, chunk.stop, chunk.step, dtype=np.float64)
        terms = last * np.cumprod(ratio(x))
        total, last = total + float(terms.sum()), float(terms[-1])
        position, size = position + size, 2 * size
    return total


def hypergeometric_log_cdf(k: int, population: int, marked: int, drawn: int) -> float:
    """ln P[X ≤ k], exact in both tails."""
    low, high = max(0, drawn + marked - population), min(drawn, marked)
    if k < low:
        return -math.inf
    if k >= high:
        return 0.0
    rest = population - marked - drawn
    if k >= drawn * marked / population:
        log_upper = _log_sum(
            hypergeometric_log_pmf(k + 1, population, marked, drawn),
            lambda x: (marked - x) * (drawn - x) / ((x + 1) * (rest + x + 1)),
            range(k + 1, high),
        )
        return math.log1p(-math.exp(log_upper))
    return _log_sum(
        hypergeometric_log_pmf(k, population, marked, drawn),
        lambda x: x * (rest + x) / ((marked - x + 1) * (drawn - x + 1)),
        range(k, low, -1),
    )


def hypergeometric_quantile(share: float, population: int, marked: int, drawn: int) -> int:
    """The least k with P[X ≤ k] ≥ share."""
    wanted = math.log(share)

    def reached(k: int) -> bool:
        return hypergeometric_log_cdf(k, population, marked, drawn) >= wanted

    return bisect_left(range(min(drawn, marked) + 1), True, key=reached)


def binomial_log_cdf(k: int, n: int, p: float) -> float:
    """ln P[X ≤ k] for X ~ Bin(n, p), exact in both tails."""
    if k < 0:
        return -math.inf
    if k >= n or p == 0.0:
        return 0.0
    if p == 1.0:
        return -math.inf
    odds = p / (1 - p)
    if k >= n * p:
        log_upper = _log_sum(
            binomial_log_pmf(k + 1, n, p), lambda x: (n - x) / (x + 1) * odds, range(k + 1, n)
        )
        return math.log1p(-math.exp(log_upper))
    return _log_sum(binomial_log_pmf(k, n, p), lambda x: x / (n - x + 1) / odds, range(k, 0, -1))


def all_draws_within(
    tolerated: int, population: int, byzantine: int, sampled: int, draws: int
) -> float:
    """The exact probability that no draw has more Byzantine clients than tolerated."""
    return math.exp(draws * hypergeometric_log_cdf(tolerated, population, byzantine, sampled))
