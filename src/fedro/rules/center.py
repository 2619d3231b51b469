"""Rules that look for a center, with weights that depend on the distances to it."""

import math
from typing import Any

import numpy as np

from fedro.common.options import ABOVE_ZERO, AT_LEAST_ONE, Range
from fedro.rules import kappa
from fedro.rules.registration import register
from fedro.rules.rows import Floats, Rows
from fedro.rules.selection import weight_on
from fedro.rules.table import ANY


@register(
    cost="n²d",
    source="Pillutla et al. 2022",
    weighted=True,
    ranges={"tolerance": Range("above 0, at most 0.001", lambda value: 0 < value <= 1e-3)},
    kappa=kappa.geometric_median,
    kappa_source="Allouah et al. 2023",
)
def geometric_median(rows: Rows, *, tolerance: float = 1e-10) -> Any:
    """The point with the least sum of distances to the rows, to within `tolerance`.

    A minimizes Σ ‖x_i − A‖. Weiszfeld's iteration runs on the n² distances between the rows, so the
    data are read twice, however many steps it takes.

    Args:
        tolerance: The iteration stops when the gradient is shorter than this.

    Example:
        >>> geometric_median(b=1)(np.array([[1.0], [2.0], [99.0]]))
        array([2.])
    """
    sq, sizes = rows.sq, rows.mean_of(np.arange(rows.n))
    at = optimal_row(sq, sizes)
    if at is not None:
        return rows.combine(weight_on(at, rows.n))
    weights = weiszfeld(sq, sizes, tolerance)
    if not trustworthy(sq, weights):
        weights = weiszfeld_weights(rows.sq_to(weights), sizes)  # one true step on the data
    return rows.combine(weights)


def gaps_to(sq: Floats, weights: Floats) -> Floats:
    """Return ‖x_i − z‖² of the point z = Σ weights_i·x_i, from ‖x_i − x_j‖²."""
    return np.asarray(np.maximum(sq @ weights - 0.5 * (weights @ sq @ weights), 0.0))


def trustworthy(sq: Floats, weights: Floats) -> bool:
    """Return whether `gaps_to` subtracts numbers no larger than a few times its result.

    Distances have float32's relative error, which cancellation magnifies: a far row with a small
    weight does that.
    """
    return bool((sq @ weights <= 8.0 * gaps_to(sq, weights)).all())


def optimal_row(sq: Floats, sizes: Floats) -> int | None:
    """Return a row that is the geometric median itself, or None.

    Row k is, if ‖Σ s_i·u_i‖ ≤ the sum of the sizes at this row, where u_i are the unit vectors to
    the rows elsewhere and s_i their sizes.
    """
    for k in np.argsort(np.sqrt(sq) @ sizes)[:2]:
        away = sq[k] > 0
        if gradient_norm(sq[np.ix_(away, away)], sq[k, away], sizes[away]) <= sizes[~away].sum():
            return int(k)
    return None


def gradient_norm(sq: Floats, gaps: Floats, sizes: Floats) -> float:
    """Return ‖Σ s_i·(x_i − z)/‖x_i − z‖‖, the length of the gradient at a point z.

    `sq` holds ‖x_i − x_j‖², `gaps` holds ‖x_i − z‖².
    """
    strength = sizes / np.sqrt(gaps)
    products = 0.5 * (gaps[:, None] + gaps[None, :] - sq)
    return math.sqrt(max(0.0, float(strength @ products @ strength)))


def weiszfeld_weights(gaps: Floats, sizes: Floats) -> Floats:
    """Return Weiszfeld's weights s_i/‖x_i − z‖, normalized."""
    if (gaps == 0).any():
        return np.asarray(np.where(gaps == 0, sizes, 0.0) / sizes[gaps == 0].sum())
    weights = sizes / np.sqrt(gaps)
    return np.asarray(weights / weights.sum())


def weiszfeld(sq: Floats, sizes: Floats, tolerance: float, max_steps: int = 5000) -> Floats:
    """Return the weights of the geometric median, from the n² distances alone.

    Near a row that is almost optimal, steps get tiny: the iteration ends when a hundred of them
    improve the gradient by less than 1%. One product with the distances makes a step: it gives the
    gradient at this point and the distances to the next one.
    """
    weights, reached, before = sizes, sq @ sizes, np.inf
    for step in range(max_steps):
        gaps = np.maximum(reached - 0.5 * (weights @ reached), 0.0)
        if not gaps.all():
            break
        strength = sizes / np.sqrt(gaps)
        total, reached = strength.sum(), sq @ strength
        gradient_sq = total * (strength @ gaps) - 0.5 * (strength @ reached)  # squared length
        if gradient_sq <= tolerance**2:
            break
        if step % 100 == 0:
            if gradient_sq > 0.98 * before:
                break
            before = gradient_sq
        weights, reached = strength / total, reached / total
    return weights


@register(
    valid=ANY,
    cost="nd per step",
    source="Karimireddy et al. 2021",
    weighted=True,
    reference="optional",
    ranges={"tau": ABOVE_ZERO, "iterations": AT_LEAST_ONE},
)
def centered_clipping(rows: Rows, *, tau: float = 10.0, iterations: int = 3) -> Any:
    """The reference plus the mean of (row − reference), each cut to a length of at most tau.

    v ← v + (1/n)·Σ (x_i − v)·min(1, tau/‖x_i − v‖), repeated. In a run, the reference is the
    aggregate of the round before.

    Args:
        tau: Largest length of a difference.
        iterations: Number of repetitions.

    Example:
        >>> centered_clipping(tau=1.0, iterations=1)(np.array([[0.5], [0.5], [1e9], [0.0]]))
        array([0.5])
    """
    sizes = rows.mean_of(np.arange(rows.n))
    weights, gaps = np.zeros(rows.n), rows.reference_sq  # center = Σ w_i·x_i + (1−Σw)·reference
    for step in range(iterations):
        if step:
            gaps = rows.sq_to(weights, 1 - weights.sum())
        cut = sizes * np.minimum(1.0, tau / np.sqrt(np.maximum(gaps, np.finfo(float).tiny)))
        weights = weights * (1 - cut.sum()) + cut
    return rows.combine(weights, 1 - weights.sum())


@register(valid=ANY, cost="nd", source="Cao et al. 2021", reference="needed")
def fltrust(rows: Rows) -> Any:
    """Rows scaled to a trusted reference's length; mean weighted by max(0, cosine with it).

    A = Σ t_i·(‖r‖/‖x_i‖)·x_i / Σ t_i, where r is the reference and t_i = max(0, cos(x_i, r)). Rows
    of length zero get no weight; without any weight A is zero.

    Example:
        >>> fltrust()(np.array([[1.0], [2.0], [-1e9]]), reference=np.array([2.0]))
        array([2.])
    """
    lengths = rows.norms * rows.reference_norm
    known = lengths > 0  # a row of length zero has no direction, so it gets no weight
    trust = np.zeros(rows.n)
    trust[known] = np.clip(rows.reference_dot[known] / lengths[known], 0.0, 1.0)
    if trust.sum() == 0:
        return rows.combine(np.zeros(rows.n))
    weights = trust / trust.sum()
    weights[known] *= rows.reference_norm / rows.norms[known]
    return rows.combine(weights)
