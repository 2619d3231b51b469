"""Slow float64 references for every aggregation rule, written straight from the definitions.

A rule maps `x` (n, d) and the number `b` of tolerated rows to a vector (d,); a mixer maps it to
another matrix (m, d). Nothing here is fast and nothing here shares code with the library.

    RULES, MIXERS      name -> reference
    OUTPUTS            name -> every output that an equally good choice (a tie) would give
    BOUNDS, r          the proved coefficients, written independently of the library
    kappa_ratio        the worst ratio of the robustness inequality over all subsets
    robust, chain      hostile rows; compositions
    CASES              structured inputs
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, wraps
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Rule = Callable[..., Array]

RULES: dict[str, Rule] = {}
MIXERS: dict[str, Rule] = {}
OUTPUTS: dict[str, Callable[..., list[Array]]] = {}

TIE = 1e-5  # a selection within this relative distance of the best score is as good as the best
ROUNDING = 1e-12  # how far, relative to the rows, an output may be off through rounding alone


def minority(n: int, b: int) -> bool:
    """2b < n: the condition without which no rule is robust."""
    return 2 * b < n


def anything(n: int, b: int) -> bool:
    """No condition (rules that make no promise, or trust a reference)."""
    return True


def reference(
    table: dict[str, Rule], valid: Callable[[int, int], bool] = minority
) -> Callable[[Rule], Rule]:
    """Register under the function's name; convert `x` to float64 and check the arguments."""

    def register(function: Rule) -> Rule:
        @wraps(function)
        def checked(x: ArrayLike, b: int, **options: Any) -> Array:
            rows = np.array(x, dtype=np.float64)
            if rows.ndim != 2 or 0 in rows.shape:
                raise ValueError(f"need a matrix (n, d) that is not empty, got {rows.shape}")
            if b < 0 or not valid(len(rows), b):
                raise ValueError(f"{function.__name__}: b={b} of n={len(rows)} is not valid")
            return function(rows, b, **options)

        table[function.__name__] = checked
        return checked

    return register


# --- small facts -----------------------------------------------------------------------------


def distances(x: Array) -> Array:
    """‖x_i − x_j‖, from differences (n, n)."""
    return np.linalg.norm(x[:, None, :] - x[None, :, :], axis=2)


def nearest(values: Array, k: int) -> Array:
    """Indices of the k smallest values; ties go to the lower index."""
    return np.argsort(values, kind="stable")[:k]


def subsets(n: int, size: int) -> Iterator[tuple[int, ...]]:
    """All subsets of {0..n−1} of this size, in lexicographic order."""
    return itertools.combinations(range(n), size)


def clip_rows(x: Array, limit: float) -> Array:
    """x_i · min(1, limit/‖x_i‖)."""
    norms = np.linalg.norm(x, axis=1)
    return np.stack(
        [row * (limit / s) if s > limit else row for row, s in zip(x, norms, strict=False)]
    )


# --- per coordinate --------------------------------------------------------------------------


@reference(RULES, anything)
def mean(x: Array, b: int) -> Array:
    """(1/n) Σ x_i."""
    return x.mean(axis=0)


@reference(RULES)
def median(x: Array, b: int) -> Array:
    """Per coordinate the middle value; for even n the midpoint of the two middle values."""
    s = np.sort(x, axis=0)
    n = len(s)
    return s[(n - 1) // 2] / 2 + s[n // 2] / 2


@reference(RULES)
def trimmed_mean(x: Array, b: int) -> Array:
    """Per coordinate the mean of what remains without the b lowest and the b highest values."""
    return np.sort(x, axis=0)[b : len(x) - b].mean(axis=0)


@reference(RULES)
def meamed(x: Array, b: int) -> Array:
    """Per coordinate the mean of the n−b values nearest the median."""
    center = median(x, b)
    return np.array([_mean_near(x[:, j], center[j], len(x) - b) for j in range(x.shape[1])])


def _mean_near(values: Array, center: float, k: int) -> float:
    """Mean of the k values nearest the center."""
    return float(values[nearest(abs(values - center), k)].mean())


def meamed_interval(x: ArrayLike, b: int, rtol: float = TIE) -> tuple[Array, Array]:
    """Lowest and highest meamed per coordinate over all ways to break ties of |x_i − median|."""
    rows = np.array(x, dtype=np.float64)
    center, k = median(rows, b), len(rows) - b
    ends = [_near_interval(rows[:, j], center[j], k, rtol) for j in range(rows.shape[1])]
    return np.array([e[0] for e in ends]), np.array([e[1] for e in ends])


def _near_interval(values: Array, center: float, k: int, rtol: float) -> tuple[float, float]:
    """The two extreme means of k values that are nearest the center up to ties."""
    sure, tied, missing = _split(abs(values - center), k, rtol)
    fill = np.sort(values[tied])
    kept = values[sure].sum()
    low, high = fill[:missing].sum(), fill[len(fill) - missing :].sum()
    return (kept + low) / k, (kept + high) / k


def _split(scores: Array, k: int, rtol: float) -> tuple[Array, Array, int]:
    """Indices surely among the k smallest, indices tied at the border, how many of these fit."""
    border = np.sort(scores)[k - 1]
    tied = np.flatnonzero(abs(scores - border) <= rtol * border)
    sure = np.setdiff1d(np.flatnonzero(scores <= border), tied)
    return sure, tied, k - len(sure)


# --- geometric median ------------------------------------------------------------------------


@reference(RULES)
def geometric_median(x: Array, b: int) -> Array:
    """argmin_z Σ‖z − x_i‖; of a segment of minimisers (rows on a line, even n) the midpoint."""
    center = median(x, b)
    y = x - center
    scale = np.median(np.linalg.norm(y, axis=1)) or abs(y).max() or 1.0
    y = y / scale
    basis = _line_or_basis(y, 4e-16 * abs(center).max() / scale)
    coordinates = y @ basis
    z = np.median(coordinates, axis=0) if basis.shape[1] == 1 else _minimiser(coordinates)
    return center + scale * (basis @ z)


def _line_or_basis(y: Array, noise: float) -> Array:
    """Orthonormal columns that span the rows; a single one if all lie on a line through zero."""
    gaps = distances(y)
    i, j = np.unravel_index(np.argmax(gaps), gaps.shape)
    line = (y[i] - y[j]) / (gaps[i, j] or 1.0)
    off_line = np.linalg.norm(y - np.outer(y @ line, line), axis=1)
    if np.all(off_line <= 1e-13 * np.linalg.norm(y, axis=1) + noise):
        return line[:, None]
    return np.eye(y.shape[1]) if y.shape[1] <= len(y) else np.linalg.qr(y.T)[0]


def _minimiser(x: Array) -> Array:
    """A row that is optimal, else Weiszfeld's iteration finished by Newton's."""
    for row in x:
        if np.linalg.norm(_pull(x, row)) <= np.all(x == row, axis=1).sum():
            return row
    z = _leave(x, min(x, key=lambda row: geometric_median_objective(x, row)))
    for _ in range(30):
        z = _weiszfeld(x, z)
    for _ in range(1000):
        before, z = z, _newton(x, z)
        if np.array_equal(before, z):
            before, z = z, _weiszfeld(x, z)
            if np.linalg.norm(_pull(x, z)) >= np.linalg.norm(_pull(x, before)):
                return before
    return z


def geometric_median_objective(x: ArrayLike, z: ArrayLike) -> float:
    """Σ‖z − x_i‖."""
    return float(np.linalg.norm(np.asarray(x, float) - np.asarray(z, float), axis=1).sum())


def geometric_median_residual(x: ArrayLike, z: ArrayLike) -> float:
    """Distance from 0 to the subdifferential at z: 0 exactly at a minimiser, at most n."""
    rows, point = np.asarray(x, float), np.asarray(z, float)
    at = np.all(rows == point, axis=1).sum()
    return max(0.0, float(np.linalg.norm(_pull(rows, point)) - at))


def _pull(x: Array, z: Array) -> Array:
    """Σ (x_i − z)/‖x_i − z‖ over the rows that are not z."""
    gaps = x - z
    lengths = np.linalg.norm(gaps, axis=1)
    return (gaps[lengths > 0] / lengths[lengths > 0, None]).sum(axis=0)


def _leave(x: Array, row: Array) -> Array:
    """A point next to a row that is not optimal, downhill (halve the step until it is)."""
    direction = _pull(x, row) / np.linalg.norm(_pull(x, row))
    best = geometric_median_objective(x, row)
    step = np.median(np.linalg.norm(x - row, axis=1)) or 1.0
    while step > 0 and geometric_median_objective(x, row + step * direction) >= best:
        step /= 2
    return row + step * direction


def _weiszfeld(x: Array, z: Array) -> Array:
    """Σ x_i/‖x_i − z‖ / Σ 1/‖x_i − z‖; stays where it is if it has met a row."""
    lengths = np.linalg.norm(x - z, axis=1)
    if not lengths.all():
        return z
    return z + _pull(x, z) / (1 / lengths).sum()


def _newton(x: Array, z: Array) -> Array:
    """z + H⁻¹ Σ u_i with H = Σ (I − u_i u_iᵀ)/‖x_i − z‖, kept only if the pull gets smaller."""
    lengths = np.linalg.norm(x - z, axis=1)
    if not lengths.all():
        return z
    units = (x - z) / lengths[:, None]
    hessian = np.eye(len(z)) * (1 / lengths).sum() - (units.T / lengths) @ units
    step = np.linalg.lstsq(hessian, units.sum(axis=0), rcond=None)[0]
    for shrink in 0.5 ** np.arange(30):
        if np.linalg.norm(_pull(x, z + shrink * step)) < np.linalg.norm(_pull(x, z)):
            return z + shrink * step
    return z


# --- selection by score ----------------------------------------------------------------------


def krum_scores(x: ArrayLike, b: int, *, original: bool = False) -> Array:
    """Σ squared distances to the n−b nearest (self included), or the n−b−2 nearest others."""
    sq = np.sort(distances(np.asarray(x, dtype=np.float64)) ** 2, axis=1)
    n = len(sq)
    return sq[:, 1 : n - b - 1].sum(axis=1) if original else sq[:, : n - b].sum(axis=1)


def _krum_valid(n: int, b: int, original: bool) -> None:
    if original and n < 2 * b + 3:
        raise ValueError(f"original krum: n={n} < 2b+3={2 * b + 3}")


@reference(RULES)
def krum(x: Array, b: int, *, original: bool = False) -> Array:
    """The row of least score."""
    _krum_valid(len(x), b, original)
    return x[np.argmin(krum_scores(x, b, original=original))]


def _selected(n: int, b: int, m: int | None, original: bool) -> int:
    """How many rows multi-Krum averages: n−b, or n−b−2 in the original."""
    most = n - b - 2 if original else n - b
    count = most if m is None else m
    if not 1 <= count <= most:
        raise ValueError(f"m={count} must be in 1..{most}")
    return count


@reference(RULES)
def multi_krum(x: Array, b: int, *, m: int | None = None, original: bool = False) -> Array:
    """Mean of the m rows of least score."""
    _krum_valid(len(x), b, original)
    scores = krum_scores(x, b, original=original)
    return x[nearest(scores, _selected(len(x), b, m, original))].mean(axis=0)


def krum_outputs(x: ArrayLike, b: int, *, original: bool = False, rtol: float = TIE) -> list[Array]:
    """Every row whose score is within rtol of the best."""
    rows = np.asarray(x, dtype=np.float64)
    scores = krum_scores(rows, b, original=original)
    return [
        row for row, score in zip(rows, scores, strict=False) if score <= (1 + rtol) * scores.min()
    ]


def multi_krum_outputs(
    x: ArrayLike, b: int, *, m: int | None = None, original: bool = False, rtol: float = TIE
) -> list[Array]:
    """The mean for every way to break ties at the m-th score."""
    rows = np.asarray(x, dtype=np.float64)
    count = _selected(len(rows), b, m, original)
    sure, tied, missing = _split(krum_scores(rows, b, original=original), count, rtol)
    fills = itertools.combinations(tied, missing)
    return [rows[[*sure, *fill]].mean(axis=0) for fill in fills]


OUTPUTS["krum"], OUTPUTS["multi_krum"] = krum_outputs, multi_krum_outputs


# --- selection of a subset -------------------------------------------------------------------


def diameter(x: Array, subset: Sequence[int]) -> float:
    """max ‖x_i − x_j‖ over the subset."""
    return float(distances(x[list(subset)]).max())


def variance(x: Array, subset: Sequence[int]) -> float:
    """Σ ‖x_i − x̄_S‖² over the subset."""
    rows = x[list(subset)]
    return float(((rows - rows.mean(axis=0)) ** 2).sum())


def spread(x: Array, subset: Sequence[int]) -> float:
    """λ_max of (1/|S|) Σ (x_i − x̄_S)(x_i − x̄_S)ᵀ, from the Gram matrix of the same spectrum."""
    rows = x[list(subset)] - x[list(subset)].mean(axis=0)
    return float(max(0.0, np.linalg.eigvalsh(rows @ rows.T / len(rows))[-1]))


OBJECTIVES: dict[str, Callable[[Array, Sequence[int]], float]] = {
    "mda": diameter,
    "mva": variance,
    "smea": spread,
}


def _best_subset_mean(x: Array, b: int, objective: Callable[..., float]) -> Array:
    """Mean of the subset of n−b rows of least objective, the first one if several tie."""
    best = min(subsets(len(x), len(x) - b), key=lambda subset: objective(x, subset))
    return x[list(best)].mean(axis=0)


@reference(RULES)
def mda(x: Array, b: int) -> Array:
    """Mean of the n−b rows of least diameter."""
    return _best_subset_mean(x, b, diameter)


@reference(RULES)
def mva(x: Array, b: int) -> Array:
    """Mean of the n−b rows of least variance."""
    return _best_subset_mean(x, b, variance)


@reference(RULES)
def smea(x: Array, b: int) -> Array:
    """Mean of the n−b rows whose covariance has the least largest eigenvalue."""
    return _best_subset_mean(x, b, spread)


def subset_outputs(name: str) -> Callable[..., list[Array]]:
    """Means of all subsets whose objective is within rtol of the best (mda ties by nature)."""

    def outputs(x: ArrayLike, b: int, *, rtol: float = TIE) -> list[Array]:
        rows = np.asarray(x, dtype=np.float64)
        every = list(subsets(len(rows), len(rows) - b))
        values = np.array([OBJECTIVES[name](rows, subset) for subset in every])
        good = np.flatnonzero(values <= (1 + rtol) * values.min())
        return [rows[list(every[i])].mean(axis=0) for i in good]

    return outputs


OUTPUTS.update({name: subset_outputs(name) for name in OBJECTIVES})


# --- spectral --------------------------------------------------------------------------------


@reference(RULES)
def caf(x: Array, b: int, *, literal: bool = False) -> Array:
    """Down-weight along the top eigenvector while Σc > n−2b; the mean that had the least λ.

    c_i ← c_i·(1 − τ_i/max τ) with τ_i = ((x_i − μ)ᵀv)²; with b=0 it is the mean. The maximum is
    over the rows that have weight left, so that each round removes one. `literal` takes it over
    all rows, as published code does: a far row without weight then makes the rounds endless.
    """
    c, best, least = np.ones(len(x)), x.mean(axis=0), math.inf
    while c.sum() > len(x) - 2 * b:
        mu = (c[:, None] * x).sum(axis=0) / c.sum()
        value, v = top_eigenpair(x - mu, c / c.sum())
        if value < least:
            best, least = mu, value
        tau = ((x - mu) @ v) ** 2
        most = tau.max() if literal else tau[c > 0].max()
        if value == 0 or most == 0:
            break
        c = c * np.maximum(0.0, 1 - tau / most)
    return best


def top_eigenpair(rows: Array, weights: Array) -> tuple[float, Array]:
    """Largest eigenvalue and its vector of Σ w_i x_i x_iᵀ, by the singular values of √w_i x_i."""
    _, s, vt = np.linalg.svd(np.sqrt(weights)[:, None] * rows, full_matrices=False)
    return float(s[0] ** 2), vt[0]


@reference(RULES)
def dnc(x: Array, b: int, *, columns: Sequence[ArrayLike], c: float = 1.0) -> Array:
    """Per column sample drop the ⌊c·b⌋ largest projections² on the top direction; intersect.

    `columns` holds one list of column indices per iteration; an empty intersection is an error.
    """
    keep = set(range(len(x)))
    for sample in columns:
        keep &= set(_dnc_kept(x[:, np.asarray(sample)], math.floor(c * b)))
    if not keep:
        raise ValueError("no row survives every iteration; use fewer iterations or a smaller c")
    return x[sorted(keep)].mean(axis=0)


def _dnc_kept(sample: Array, drop: int) -> list[int]:
    """Rows that stay when the `drop` largest squared projections go."""
    centered = sample - sample.mean(axis=0)
    _, v = top_eigenpair(centered, np.ones(len(sample)))
    return nearest((centered @ v) ** 2, len(sample) - drop).tolist()


# --- bulyan ----------------------------------------------------------------------------------


def _bulyan_scores(x: Array, left: Sequence[int], b: int) -> Array:
    """Krum's original score among the rows left, with at least one neighbour."""
    sq = np.sort(distances(x[list(left)]) ** 2, axis=1)
    return sq[:, 1 : 1 + max(1, len(left) - b - 2)].sum(axis=1)


def _near_median(x: Array, k: int) -> Array:
    """Per coordinate the mean of the k values nearest the median."""
    center = median(x, 0)
    return np.array([_mean_near(x[:, j], center[j], k) for j in range(x.shape[1])])


@reference(RULES, lambda n, b: n >= 4 * b + 3)
def bulyan(x: Array, b: int) -> Array:
    """θ=n−2b picks by Krum, each among the rows left; then the mean of θ−2b nearest the median."""
    left = list(range(len(x)))
    theta = len(x) - 2 * b
    picks = [left.pop(int(np.argmin(_bulyan_scores(x, left, b)))) for _ in range(theta)]
    return _near_median(x[picks], theta - 2 * b)


def bulyan_outputs(x: ArrayLike, b: int, *, rtol: float = TIE) -> list[Array]:
    """The output for every way to break ties of a pick (with b ≤ 2 the last pick always ties)."""
    rows = np.asarray(x, dtype=np.float64)
    theta = len(rows) - 2 * b
    states: set[frozenset[int]] = {frozenset(range(len(rows)))}
    for _ in range(theta):
        states = {left - {i} for left in states for i in _bulyan_picks(rows, left, b, rtol)}
    picks = [sorted(set(range(len(rows))) - left) for left in states]
    return [_near_median(rows[p], theta - 2 * b) for p in picks]


def _bulyan_picks(x: Array, left: Iterable[int], b: int, rtol: float) -> list[int]:
    """Rows whose score is within rtol of the best."""
    order = sorted(left)
    scores = _bulyan_scores(x, order, b)
    return [order[i] for i in np.flatnonzero(scores <= (1 + rtol) * scores.min())]


OUTPUTS["bulyan"] = bulyan_outputs


# --- around a center or a trusted vector -----------------------------------------------------


@reference(RULES, anything)
def centered_clipping(
    x: Array, b: int, *, start: ArrayLike | None = None, tau: float = 10.0, iterations: int = 3
) -> Array:
    """v ← v + (1/n) Σ (x_i − v)·min(1, τ/‖x_i − v‖), from `start` (zero if not given)."""
    v = np.zeros(x.shape[1]) if start is None else np.array(start, dtype=np.float64)
    for _ in range(iterations):
        v = v + clip_rows(x - v, tau).mean(axis=0)
    return v


@reference(RULES)
def monna(x: Array, b: int, *, reference: ArrayLike) -> Array:
    """Mean of the n−b rows nearest a trusted vector."""
    gaps = np.linalg.norm(x - np.asarray(reference, dtype=np.float64), axis=1)
    return x[nearest(gaps, len(x) - b)].mean(axis=0)


@reference(RULES, anything)
def fltrust(x: Array, b: int, *, reference: ArrayLike) -> Array:
    """Σ t_i (‖g‖/‖x_i‖) x_i / Σ t_i, t_i = max(0, cos(x_i, g)); zero if every t_i is 0."""
    g = np.asarray(reference, dtype=np.float64)
    total, weight = np.zeros(x.shape[1]), 0.0
    for row in x:
        length = np.linalg.norm(row) * np.linalg.norm(g)
        trust = max(0.0, float(row @ g) / length) if length > 0 else 0.0
        if trust > 0:
            total += trust * (np.linalg.norm(g) / np.linalg.norm(row)) * row
            weight += trust
    return total / weight if weight > 0 else total


@reference(RULES, anything)
def norm_clip(x: Array, b: int, *, limit: float) -> Array:
    """(1/n) Σ min(1, limit/‖x_i‖) x_i."""
    return clip_rows(x, limit).mean(axis=0)


# --- mixers ----------------------------------------------------------------------------------


@reference(MIXERS)
def nnm(x: Array, b: int) -> Array:
    """y_i = mean of the n−b rows nearest x_i, itself included."""
    return np.stack([x[nearest(row, len(x) - b)].mean(axis=0) for row in distances(x)])


def nnm_ambiguous(x: ArrayLike, b: int, rtol: float = TIE) -> bool:
    """Whether some row's n−b nearest rows are not determined (a tie between different rows)."""
    rows = np.asarray(x, dtype=np.float64)
    for gaps in distances(rows):
        _, tied, missing = _split(gaps, len(rows) - b, rtol)
        if missing < len(tied) and np.ptp(rows[tied], axis=0).max() > 0:
            return True
    return False


@reference(MIXERS, anything)
def bucketing(x: Array, b: int, *, permutation: Sequence[int], s: int = 2) -> Array:
    """⌈n/s⌉ means of s rows each, in the order of the permutation; the last may hold fewer."""
    rows = x[np.asarray(permutation)]
    return np.stack([rows[i : i + s].mean(axis=0) for i in range(0, len(rows), s)])


def arc_threshold(x: ArrayLike, b: int) -> float:
    """The (k+1)-th largest norm, k = ⌊2(b/n)(n−b)⌋ in integers."""
    norms = np.sort(np.linalg.norm(np.asarray(x, dtype=np.float64), axis=1))[::-1]
    n = len(norms)
    return float(norms[2 * b * (n - b) // n])


@reference(MIXERS)
def arc(x: Array, b: int) -> Array:
    """Clip every row to the (k+1)-th largest norm, k = ⌊2(b/n)(n−b)⌋."""
    return clip_rows(x, arc_threshold(x, b))


@reference(MIXERS, anything)
def clip(x: Array, b: int, *, limit: float) -> Array:
    """Clip every row to a fixed norm."""
    return clip_rows(x, limit)


@reference(MIXERS, anything)
def clip_step(
    x: Array, b: int, *, factor: float = 3.0, reference: ArrayLike | None = None
) -> Array:
    """Clip every row to a factor times the length of a vector; without one they stay."""
    if reference is None:
        return x
    return clip_rows(x, factor * float(np.linalg.norm(np.asarray(reference, dtype=np.float64))))


# --- composition and hostile rows ------------------------------------------------------------


def chain(*stages: Rule) -> Rule:
    """Mixers, then a rule, with one b for all of them."""

    def composed(x: ArrayLike, b: int) -> Array:
        rows = np.asarray(x, dtype=np.float64)
        for stage in stages:
            rows = stage(rows, b)
        return rows

    return composed


def robust(rule: Rule, far: float | None = None) -> Rule:
    """Drop rows that are not finite (and, with `far`, too far) and lower n and b with each."""

    def screened(x: ArrayLike, b: int, **options: Any) -> Array:
        rows = np.asarray(x, dtype=np.float64)
        keep = np.isfinite(rows).all(axis=1)
        if (~keep).sum() > b:
            raise ValueError(f"{(~keep).sum()} rows are not finite, only b={b} may be")
        rows, left = rows[keep], b - int((~keep).sum())
        if far is not None:
            near = near_rows(rows, left, far)
            rows, left = rows[near], left - int((~near).sum())
        return rule(rows, left, **options)

    return screened


def near_rows(x: Array, b: int, far: float) -> NDArray[np.bool_]:
    """Rows within far·ρ of the row around which the smallest ball (radius ρ) holds n−b rows."""
    gaps = distances(x)
    radius = np.sort(gaps, axis=1)[:, len(x) - b - 1]
    center = int(np.argmin(radius))
    return gaps[center] <= far * radius[center]


# --- the robustness coefficient --------------------------------------------------------------


def r(n: int, b: int) -> float:
    """b/(n−2b), the lower bound on κ of every rule."""
    return b / (n - 2 * b)


@cache
def _every_subset(n: int, size: int) -> NDArray[np.intp]:
    """All subsets as an index matrix (count, size)."""
    return np.array(list(subsets(n, size)))


def subset_ratios(
    output: ArrayLike, x: ArrayLike, chosen: ArrayLike, rounding: float = ROUNDING
) -> Array:
    """‖A − x̄_S‖² / ((1/|S|) Σ_S ‖x_i − x̄_S‖²) for each given subset.

    ‖A − x̄_S‖ is first lowered by rounding·max_S‖x_i‖. Then 0/0 is 0 and anything else over 0 is ∞.
    """
    rows = np.asarray(x, dtype=np.float64)[np.asarray(chosen)]  # (subsets, size, d)
    centers = rows.mean(axis=1)
    spread_sq = ((rows - centers[:, None, :]) ** 2).sum(axis=2).mean(axis=1)
    slack = rounding * np.linalg.norm(rows, axis=2).max(axis=1)
    gap = np.linalg.norm(np.asarray(output, dtype=np.float64) - centers, axis=1) - slack
    error = np.maximum(gap, 0.0) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / spread_sq)


def kappa_ratio(output: ArrayLike, x: ArrayLike, b: int, rounding: float = ROUNDING) -> float:
    """The worst ratio over ALL subsets of n−b rows (exact; for small n)."""
    n = len(np.asarray(x))
    return float(subset_ratios(output, x, _every_subset(n, n - b), rounding).max())


def kappa_ratio_among(
    output: ArrayLike,
    x: ArrayLike,
    b: int,
    rng: np.random.Generator,
    count: int = 200,
    rounding: float = ROUNDING,
) -> float:
    """A lower bound of the worst ratio for larger n: candidate subsets, then swaps that help."""
    chosen = candidate_subsets(output, x, b, rng, count)
    ratios = subset_ratios(output, x, chosen, rounding)
    return _swap_climb(output, x, chosen[int(np.argmax(ratios))], rounding)


def candidate_subsets(
    output: ArrayLike, x: ArrayLike, b: int, rng: np.random.Generator, count: int = 200
) -> NDArray[np.intp]:
    """n−b rows: random; extreme along A−x̄ and the axes; nearest or farthest from A; balls."""
    rows, a = np.asarray(x, dtype=np.float64), np.asarray(output, dtype=np.float64)
    size = len(rows) - b
    keys = [rng.random(len(rows)) for _ in range(count)]
    keys += [rows @ (a - rows.mean(axis=0)), np.linalg.norm(rows - a, axis=1)]
    keys += list(rows.T[:20]) + list((rows @ rng.standard_normal((rows.shape[1], 20))).T)
    keys += [-key for key in keys[count:]] + list(distances(rows))
    return np.array([np.sort(nearest(key, size)) for key in keys])


def _swap_climb(output: ArrayLike, x: ArrayLike, subset: Array, rounding: float) -> float:
    """Exchange one row of the subset for one outside while the ratio grows."""
    best = float(subset_ratios(output, x, [subset], rounding)[0])
    while True:
        outside = np.setdiff1d(np.arange(len(np.asarray(x))), subset)
        swaps = [np.append(np.delete(subset, i), j) for i in range(len(subset)) for j in outside]
        if not swaps:
            return best
        ratios = subset_ratios(output, x, swaps, rounding)
        if not ratios.max() > best:
            return best
        best, subset = float(ratios.max()), swaps[int(np.argmax(ratios))]


# --- the proved coefficients -----------------------------------------------------------------


def _median_bound(n: int, b: int) -> float:
    """Odd (n−1)/(n+1−2b), even (n−2)/(n+2−2b)."""
    return (n - 1) / (n + 1 - 2 * b) if n % 2 else (n - 2) / (n + 2 - 2 * b)


def _mda_bound(n: int, b: int) -> float:
    """min{8b²/(n−b), r(1+√(n−b−1))²}."""
    return min(8 * b * b / (n - b), r(n, b) * (1 + math.sqrt(n - b - 1)) ** 2)


BOUNDS: dict[str, Callable[[int, int], float]] = {
    "trimmed_mean": r,
    "median": _median_bound,
    "geometric_median": lambda n, b: 4 * (1 + r(n, b)) ** 2,
    "krum": lambda n, b: 6 * (1 + r(n, b)),
    "mda": _mda_bound,
    "mva": lambda n, b: 4 * r(n, b),
    "meamed": lambda n, b: r(n, b) * (1 + math.sqrt(1 + n / (n - 2 * b))) ** 2,
}

MIXER_BOUNDS: dict[str, Callable[[int, int, float], float]] = {
    "nnm": lambda n, b, kappa: 4 * b / (n - b) * (kappa + 1),
    "arc": lambda n, b, kappa: kappa + 2 * r(n, b),
}


def overtrimmed_bound(n: int, f: int, k: int) -> float:
    """Trimming k ≥ f on each side against f bad rows: k/(n−f−k)."""
    return k / (n - f - k)


# What the definitions promise. Ties can break "permutation"; compare through OUTPUTS there.
# With a start, reference, tau or limit the property holds when it is moved along with the rows.
_ALL = frozenset({"permutation", "translation", "scale", "rotation"})
_COORDINATES = frozenset({"permutation", "translation", "scale"})
EQUIVARIANCE: dict[str, frozenset[str]] = {
    **dict.fromkeys(["median", "trimmed_mean", "meamed", "bulyan"], _COORDINATES),
    **dict.fromkeys(["mean", "geometric_median", "krum", "multi_krum"], _ALL),
    **dict.fromkeys(["mda", "mva", "smea", "caf", "centered_clipping", "monna", "nnm"], _ALL),
    **dict.fromkeys(["fltrust", "norm_clip", "arc", "clip", "clip_step"], _ALL - {"translation"}),
    "dnc": _COORDINATES,
    "bucketing": frozenset({"translation", "scale", "rotation"}),
}


# --- structured inputs -----------------------------------------------------------------------


def _gaussian(n: int, d: int, b: int, rng: np.random.Generator) -> Array:
    return rng.standard_normal((n, d))


def _outliers(n: int, d: int, b: int, rng: np.random.Generator) -> Array:
    x = 5 + rng.standard_normal((n, d))
    x[n - b :] = 1e4 * rng.standard_normal((b, d))
    return x


def _equal(n: int, d: int, b: int, rng: np.random.Generator) -> Array:
    return np.tile(rng.standard_normal(d), (n, 1))


def _rank_one(n: int, d: int, b: int, rng: np.random.Generator) -> Array:
    return np.outer(rng.standard_normal(n), rng.standard_normal(d))


def _ties(n: int, d: int, b: int, rng: np.random.Generator) -> Array:
    return rng.integers(-1, 2, (n, d)).astype(np.float64)


def _zeros_and_ones(n: int, d: int, b: int, rng: np.random.Generator) -> Array:
    x = np.zeros((n, d))
    x[n - b :] = 1.0
    return x


def _mixed(n: int, d: int, b: int, rng: np.random.Generator) -> Array:
    return rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-15, 15, d)


def _heavy(n: int, d: int, b: int, rng: np.random.Generator) -> Array:
    return rng.standard_cauchy((n, d))


def _alie(n: int, d: int, b: int, rng: np.random.Generator) -> Array:
    x = 1 + rng.standard_normal((n, d))
    x[n - b :] = x[: n - b].mean(axis=0) + 1.5 * x[: n - b].std(axis=0)
    return x


def _scaled(factor: float) -> Callable[..., Array]:
    return lambda n, d, b, rng: factor * rng.standard_normal((n, d))


_MAKERS: dict[str, Callable[..., Array]] = {
    "gaussian": _gaussian,
    "outliers": _outliers,
    "equal": _equal,
    "rank_one": _rank_one,
    "ties": _ties,
    "zeros_and_ones": _zeros_and_ones,
    "tiny": _scaled(1e-30),
    "huge": _scaled(1e30),
    "mixed_scales": _mixed,
    "heavy_tailed": _heavy,
    "alie": _alie,
    "one_dimension": lambda n, d, b, rng: rng.standard_normal((n, 1)),
    "far_cluster": lambda n, d, b, rng: 1.0 + 1e-5 * rng.standard_normal((n, d)),
}


def _case(name: str) -> Callable[[int, int, int, int], Array]:
    def make(n: int, d: int, b: int, seed: int = 0) -> Array:
        return _MAKERS[name](n, d, b, np.random.default_rng([seed, n, d, b]))

    return make


# name -> generator(n, d, b, seed) -> (n, d); the last b rows are the bad ones where it matters
CASES: dict[str, Callable[..., Array]] = {name: _case(name) for name in _MAKERS}
