"""Formulas of κ, the robustness coefficient that is proved for a rule.

A rule A is (n, b, κ)-robust if for every n inputs and every set S of n−b of them
‖A − mean(S)‖² ≤ κ · (1/|S|)·Σ_S ‖x − mean(S)‖². No rule has κ below r = b/(n−2b).

`@register(kappa=…, kappa_source=…)` attaches a formula to its rule. The source "own" marks a proof
of this project (docs/paper-notes.md), which the tests attack numerically. The first line of each
docstring is the formula as the table of rules shows it.
"""

import math


def lower_bound(n: int, b: int) -> float:
    """Return r = b/(n−2b), the least κ that any rule can have (Allouah et al. 2023)."""
    return b / (n - 2 * b)


def trimmed_mean(n: int, b: int) -> float:
    """Exactly r: trimming is minimax optimal."""
    return lower_bound(n, b)


def median(n: int, b: int) -> float:
    """(n−1)/(n+1−2b) for odd n, (n−2)/(n+2−2b) for even n."""
    return (n - 1) / (n + 1 - 2 * b) if n % 2 else (n - 2) / (n + 2 - 2 * b)


def mean(n: int, b: int) -> float:
    """0 without Byzantine inputs, unbounded with a single one."""
    return math.inf if b else 0.0


def geometric_median(n: int, b: int) -> float:
    """4(1+r)², for the exact minimizer."""
    return 4 * (1 + lower_bound(n, b)) ** 2


def krum(n: int, b: int) -> float:
    """6(1+r), for `original=False`."""
    return 6 * (1 + lower_bound(n, b))


def mda(n: int, b: int) -> float:
    """min{8b²/(n−b), r(1+√(n−b−1))²}."""
    return min(8 * b * b / (n - b), lower_bound(n, b) * (1 + math.sqrt(n - b - 1)) ** 2)


def mva(n: int, b: int) -> float:
    """4r."""
    return 4 * lower_bound(n, b)


def meamed(n: int, b: int) -> float:
    """r(1+√(1+n/(n−2b)))²."""
    return lower_bound(n, b) * (1 + math.sqrt(1 + n / (n - 2 * b))) ** 2


def nnm(n: int, b: int, inner: float) -> float:
    """4b/(n−b)·(κ+1)."""
    return 4 * b / (n - b) * (inner + 1)


def arc(n: int, b: int, inner: float) -> float:
    """κ+2r."""
    return inner + 2 * lower_bound(n, b)
