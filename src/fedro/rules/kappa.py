"""Formulas of κ, the robustness coefficient that is proved for a rule.

A rule A is (n, b, κ)-robust if for every n inputs and every set S of n−b of them
‖A − mean(S)‖² ≤ κ · (1/|S|)·Σ_S ‖x − mean(S)‖². No rule has κ below r = b/(n−2b).

`@register(kappa=…, kappa_source=…)` attaches a formula to its rule. The source "own" marks a proof
of this project (docs/paper-notes.md), which the tests attack numerically. The first line of each
docstring is the formula as the table of rules shows it.

A rule that tolerates b inputs usually meets fewer Byzantine ones. Some formulas therefore take
`byzantine`, their true number (by default b), and hold for every set S of n−byzantine inputs. For
the others, `with_fewer` gives a bound.
"""

import math


def lower_bound(n: int, b: int) -> float:
    """Return r = b/(n−2b), the least κ that any rule can have (Allouah et al. 2023)."""
    return b / (n - 2 * b)


def kappa_text(proved: float | None, best: float) -> str:
    """Say which κ is proved for a rule, beside the best possible one."""
    own = "no κ is proved for this rule"
    if proved is not None:
        own = f"κ = {proved:.4g} is proved for this rule"
    return f"{own}; the best possible for any rule is {best:.4g}"


def with_fewer(kappa: float, n: int, b: int, byzantine: int) -> float:
    """Bound κ against `byzantine` < b Byzantine inputs, from the κ proved against b.

    Let H be the n−byzantine honest inputs. The mean of H is the average of the means of all its
    subsets S of size n−b, so the squared error is at most κ times the average variance of S.
    """
    if byzantine == b:
        return kappa
    subset, honest = n - b, n - byzantine
    return kappa * (subset - 1) / subset * honest / (honest - 1)


def trimmed_mean(n: int, b: int, byzantine: int | None = None) -> float:
    """Exactly r: trimming is minimax optimal.

    Trimming b values on each side against f Byzantine ones has exactly κ = b/(n−f−b).
    """
    return b / (n - b - (b if byzantine is None else byzantine))


def median(n: int, b: int, byzantine: int | None = None) -> float:
    """(n−1)/(n+1−2b) for odd n, (n−2)/(n+2−2b) for even n."""
    b = b if byzantine is None else byzantine  # the median does not use b
    return (n - 1) / (n + 1 - 2 * b) if n % 2 else (n - 2) / (n + 2 - 2 * b)


def mean(n: int, b: int) -> float:
    """0 without Byzantine inputs, unbounded with a single one."""
    return math.inf if b else 0.0


def geometric_median(n: int, b: int, byzantine: int | None = None) -> float:
    """4(1+r)², for the exact minimizer."""
    b = b if byzantine is None else byzantine  # the geometric median does not use b
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


def nnm(n: int, b: int, inner: float, byzantine: int | None = None) -> float:
    """4b/(n−b)·(κ+1).

    Against f Byzantine inputs: (4f(n−f) + (b−f)(n−b))/(n−b)²·(κ+1).
    """
    f = b if byzantine is None else byzantine
    return (4 * f * (n - f) + (b - f) * (n - b)) / (n - b) ** 2 * (inner + 1)


def arc(n: int, b: int, inner: float) -> float:
    """κ+2r."""
    return inner + 2 * lower_bound(n, b)
