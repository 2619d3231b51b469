"""Rules that look for outliers along the direction in which the rows vary most."""

from typing import Any

import numpy as np

from fedro.common.options import AT_LEAST_ONE, AT_LEAST_ZERO
from fedro.rules.registration import register
from fedro.rules.rows import Floats, NoAggregateError, Rows
from fedro.rules.selection import smallest

RELATIVE_TIE = 1e-9  # closer deviations count as equal: copies of a row stay or go together


def gram(sq: Floats, weights: Floats) -> Floats:
    """(x_i − μ)·(x_j − μ) from squared distances, μ = Σ weights_i·x_i."""
    to_mean = sq @ weights - 0.5 * (weights @ sq @ weights)  # ‖x_i − μ‖²
    return np.asarray(0.5 * (to_mean[:, None] + to_mean[None, :] - sq))


def top_direction(products: Floats, weights: Floats) -> tuple[float, Floats]:
    """λ and ((x_i − μ)·v)² for the top eigenpair (λ, v) of Σ weights_i (x_i−μ)(x_i−μ)ᵀ."""
    root = np.sqrt(weights)
    values, vectors = np.linalg.eigh(root[:, None] * products * root[None, :])
    value = max(float(values[-1]), 0.0)
    if value == 0.0:
        return 0.0, np.zeros(len(weights))
    return value, (products @ (root * vectors[:, -1])) ** 2 / value


@register(cost="n²d + bn³", source="Allouah et al. 2025")
def caf(rows: Rows) -> Any:
    """Lowers the weight of rows that stick out along the top eigenvector, and averages.

    "Covariance-bound agnostic filter": each step multiplies each row's weight by
    1 − deviation/largest deviation along the top eigenvector of the weighted covariance, until at
    most n−2b of the weight is left. The result is the weighted mean of the step whose largest
    eigenvalue λ was least.

    The largest deviation is taken among rows that have weight left, so each step removes a row and
    its copies. Over all rows, as published, a far row without weight makes the steps unbounded.

    Example:
        >>> caf(b=1)(np.array([[2.0], [2.0], [2.0], [1e5]]))
        array([2.])
    """
    left, least = np.ones(rows.n), np.inf
    best = left / rows.n
    while left.sum() > rows.n - 2 * rows.b:
        weights = left / left.sum()
        value, deviations = top_direction(gram(rows.sq, weights), weights)
        if value < least:
            best, least = weights, value
        largest = deviations[left > 0].max()
        if largest == 0:
            break
        left = left * np.maximum(0.0, 1 - deviations / largest)
        left[deviations >= (1 - RELATIVE_TIE) * largest] = (
            0.0  # not what rounding leaves of one of them
        )
    return rows.combine(best)


@register(
    cost="nd",
    source="Shejwalkar and Houmansadr 2021",
    weighted=True,
    ranges={"iterations": AT_LEAST_ONE, "columns": AT_LEAST_ONE, "c": AT_LEAST_ZERO},
)
def dnc(rows: Rows, *, iterations: int = 1, columns: int = 10_000, c: float = 1.0) -> Any:
    """Mean after dropping, `iterations` times, the ⌊c·b⌋ rows most extreme on random columns.

    "Divide and conquer": a row's outlier score is its squared deviation from the mean along the top
    singular vector of the sampled columns. Rows that survive every iteration are averaged.

    Args:
        iterations: Number of samples of columns.
        columns: Number of columns in a sample; all, if there are fewer.
        c: Rows to drop per iteration, in units of b.

    Example:
        >>> dnc(b=1)(np.array([[1.0], [2.0], [3.0], [1e5]]))
        array([2.])
    """
    keep, drop = np.ones(rows.n, dtype=bool), int(c * rows.b)
    if drop >= rows.n:
        raise NoAggregateError(f"dnc(c={c}) with b={rows.b}: would drop all {rows.n} rows")
    for _ in range(iterations):
        sample = rows.columns(columns)
        products = (sample - sample.mean(axis=0)) @ (sample - sample.mean(axis=0)).T
        _, deviations = top_direction(products, np.ones(rows.n))
        survivors = np.zeros(rows.n, dtype=bool)
        survivors[smallest(deviations, rows.n - drop)] = True
        keep &= survivors
    if not keep.any():
        raise NoAggregateError("dnc: no row survived all iterations; use fewer, or a smaller c")
    return rows.combine(rows.mean_of(keep))
