"""Rules that select rows by their distances, and average them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedro.rules.rows import Floats, Rows
from fedro.rules.subsets import least_diameter, least_spread, least_variance
from fedro.rules.table import register


def krum_scores(sq: Floats, b: int, original: bool) -> Floats:
    """Σ of squared distances to the n−b nearest, itself included (or the n−b−2 nearest others)."""
    n, ordered = len(sq), np.sort(sq, axis=1)
    if not original:
        return np.asarray(ordered[:, : n - b].sum(axis=1))
    if n < 2 * b + 3:
        raise ValueError(f"original krum with n={n} rows and b={b}: needs n ≥ 2b+3")
    return np.asarray(ordered[:, 1 : n - b - 1].sum(axis=1))


@register(cost="n²d", source="Blanchard et al. 2017")
def krum(rows: Rows, *, original: bool = False) -> Any:
    """The row with the least sum of squared distances to its n−b nearest."""
    return rows.combine(one(int(np.argmin(krum_scores(rows.sq, rows.b, original))), rows.n))


def one(index: int, n: int) -> Floats:
    """All the weight on one row."""
    weights = np.zeros(n)
    weights[index] = 1.0
    return weights


@register(cost="n²d", source="Blanchard et al. 2017", weighted=True, allowed={"m": "at least 1"})
def multi_krum(rows: Rows, *, m: int | None = None, original: bool = False) -> Any:
    """Mean of the m rows of least Krum score (n−b by default)."""
    scores = krum_scores(rows.sq, rows.b, original)
    most = rows.n - rows.b - 2 if original else rows.n - rows.b
    chosen = most if m is None else m
    if not 1 <= chosen <= most:
        raise ValueError(f"multi_krum(m={m}) with n={rows.n} and b={rows.b}: m must be 1 to {most}")
    return rows.combine(rows.mean_of(smallest(scores, chosen)))


def smallest(values: Floats, k: int) -> NDArray[np.intp]:
    """Positions of the k smallest; the first of equals."""
    return np.argsort(values, kind="stable")[:k]


@register(cost="n²d + search", source="El-Mhamdi et al. 2018", weighted=True)
def mda(rows: Rows) -> Any:
    """Mean of the n−b rows of least diameter."""
    return rows.combine(rows.mean_of(least_diameter(rows.sq, rows.n - rows.b)))


@register(cost="n²d + search", source="Rousseeuw 1985", weighted=True)
def mva(rows: Rows) -> Any:
    """Mean of the n−b rows of least variance."""
    return rows.combine(rows.mean_of(least_variance(rows.sq, rows.n - rows.b)))


@register(cost="n²d + search", source="Allouah et al. 2023", weighted=True)
def smea(rows: Rows) -> Any:
    """Mean of the n−b rows whose covariance has the least largest eigenvalue."""
    return rows.combine(rows.mean_of(least_spread(rows.sq, rows.n - rows.b)))


@register(valid="n ≥ 4b+3", cost="n²d + nd log n", source="El-Mhamdi et al. 2018")
def bulyan(rows: Rows) -> Any:
    """n−2b rows picked by Krum one after the other, then the n−4b values nearest the median."""
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
    """Mean of the n−b rows nearest a trusted reference."""
    return rows.combine(rows.mean_of(smallest(rows.reference_sq, rows.n - rows.b)))
