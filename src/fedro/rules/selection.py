"""Rules that select rows by their distances, and average them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedro.common.options import AT_LEAST_ONE
from fedro.rules import kappa
from fedro.rules.registration import register
from fedro.rules.rows import Floats, NoAggregateError, Rows
from fedro.rules.subsets import least_diameter, least_spread, least_variance
from fedro.rules.table import BULYAN_SIZE


def krum_scores(sq: Floats, b: int, original: bool) -> Floats:
    """Return each row's sum of squared distances to its nearest rows, from ‖x_i − x_j‖².

    These are the n−b nearest rows, itself included, or, as published, the n−b−2 nearest others.
    """
    n, ordered = len(sq), np.sort(sq, axis=1)
    if not original:
        return np.asarray(ordered[:, : n - b].sum(axis=1))
    if n < 2 * b + 3:
        raise NoAggregateError(f"original krum with n={n} rows and b={b}: needs n ≥ 2b+3")
    return np.asarray(ordered[:, 1 : n - b - 1].sum(axis=1))


@register(
    cost="n²d",
    source="Blanchard et al. 2017",
    kappa=kappa.krum,
    kappa_source="Allouah et al. 2023",
)
def krum(rows: Rows, *, original: bool = False) -> Any:
    """The row with the least sum of squared distances to its n−b nearest rows.

    A = x_i for the i that minimizes Σ ‖x_i − x_j‖² over the n−b rows j that are nearest to x_i.

    Args:
        original: Count the n−b−2 nearest other rows, as published, which needs n ≥ 2b+3. No κ is
            proved for that.

    Example:
        >>> krum(b=1)(np.array([[1.0], [2.0], [3.0], [1e9]]))
        array([2.])
    """
    best = int(np.argmin(krum_scores(rows.sq, rows.b, original)))
    return rows.combine(weight_on(best, rows.n))


def weight_on(index: int, n: int) -> Floats:
    """Return n weights, all of it on one row."""
    weights = np.zeros(n)
    weights[index] = 1.0
    return weights


@register(cost="n²d", source="Blanchard et al. 2017", weighted=True, ranges={"m": AT_LEAST_ONE})
def multi_krum(rows: Rows, *, m: int | None = None, original: bool = False) -> Any:
    """Mean of the m rows with the lowest Krum scores (n−b rows by default).

    Args:
        m: Number of rows to average; by default n−b, or n−b−2 with `original`, which is also the
            most allowed.
        original: Score the rows as published, which needs n ≥ 2b+3.

    Example:
        >>> multi_krum(b=1)(np.array([[1.0], [2.0], [3.0], [1e9]]))
        array([2.])
    """
    scores = krum_scores(rows.sq, rows.b, original)
    largest = rows.n - rows.b - 2 if original else rows.n - rows.b
    chosen = largest if m is None else m
    if not 1 <= chosen <= largest:
        raise NoAggregateError(
            f"multi_krum(m={m}) with n={rows.n} and b={rows.b}: m must be 1 to {largest}"
        )
    return rows.combine(rows.mean_of(smallest(scores, chosen)))


def smallest(values: Floats, k: int) -> NDArray[np.intp]:
    """Return the positions of the k smallest values; of equal values the first."""
    return np.argsort(values, kind="stable")[:k]


@register(
    cost="n²d + search",
    source="El-Mhamdi et al. 2018",
    weighted=True,
    kappa=kappa.mda,
    kappa_source="own",
)
def mda(rows: Rows) -> Any:
    """Mean of the subset of n−b rows with the smallest diameter.

    "Minimum-diameter averaging". The search for the subset is exact; it raises ValueError where
    it would take too long.

    Example:
        >>> mda(b=1)(np.array([[1.0], [2.0], [3.0], [1e9]]))
        array([2.])
    """
    return rows.combine(rows.mean_of(least_diameter(rows.sq, rows.n - rows.b)))


@register(
    cost="n²d + search",
    source="Rousseeuw 1985",
    weighted=True,
    kappa=kappa.mva,
    kappa_source="own",
)
def mva(rows: Rows) -> Any:
    """Mean of the subset of n−b rows with the smallest variance.

    "Minimum-variance averaging". The search for the subset is exact; it raises ValueError where
    there are too many subsets to try.

    Example:
        >>> mva(b=1)(np.array([[1.0], [2.0], [3.0], [1e9]]))
        array([2.])
    """
    return rows.combine(rows.mean_of(least_variance(rows.sq, rows.n - rows.b)))


@register(cost="n²d + search", source="Allouah et al. 2023", weighted=True)
def smea(rows: Rows) -> Any:
    """Mean of the n−b rows whose covariance has the smallest top eigenvalue.

    "Smallest maximum eigenvalue averaging". The search for the subset is exact; it raises
    ValueError where there are too many subsets to try.

    Example:
        >>> smea(b=1)(np.array([[1.0], [2.0], [3.0], [1e9]]))
        array([2.])
    """
    return rows.combine(rows.mean_of(least_spread(rows.sq, rows.n - rows.b)))


@register(valid=BULYAN_SIZE, cost="n²d + nd log n", source="El-Mhamdi et al. 2018")
def bulyan(rows: Rows) -> Any:
    """Krum picks n−2b rows; per coordinate, the mean of their n−4b values nearest the median.

    The second step works on each coordinate by itself and averages these values.

    Example:
        >>> bulyan(b=1)(np.array([[1.0], [2.0], [2.0], [2.0], [2.0], [3.0], [99.0]]))
        array([2.])
    """
    left, picks = np.arange(rows.n), []
    for _ in range(rows.n - 2 * rows.b):
        ordered = np.sort(rows.sq[np.ix_(left, left)], axis=1)
        neighbors = max(1, len(left) - rows.b - 2)
        best = int(np.argmin(ordered[:, 1 : 1 + neighbors].sum(axis=1)))
        picks.append(left[best])
        left = np.delete(left, best)
    return rows.only(np.array(picks)).band(0, len(picks), nearest=len(picks) - 2 * rows.b)


@register(cost="nd", source="Farhadkhani et al. 2023", weighted=True, reference="needed")
def monna(rows: Rows) -> Any:
    """Mean of the n−b rows nearest a trusted reference.

    Example:
        >>> updates, trusted = np.array([[1.0], [2.0], [3.0], [1e9]]), np.array([2.5])
        >>> monna(b=1)(updates, reference=trusted)
        array([2.])
    """
    return rows.combine(rows.mean_of(smallest(rows.reference_sq, rows.n - rows.b)))
