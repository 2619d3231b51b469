"""Rules that look for a center: weights that depend on the distances to it."""

import math
from typing import Any

import numpy as np

from fedro.rules.rows import Floats, Rows
from fedro.rules.selection import one
from fedro.rules.table import register


@register(
    cost="n²d",
    source="Pillutla et al. 2022",
    weighted=True,
    allowed={"tolerance": "above 0, at most 0.001"},
)
def geometric_median(rows: Rows, *, tolerance: float = 1e-10) -> Any:
    """The point with the least sum of distances to the rows, to a gradient below `tolerance`."""
    sq, sizes = rows.sq, rows.mean_of(np.arange(rows.n))
    at = optimal_row(sq, sizes)
    if at is not None:
        return rows.combine(one(at, rows.n))
    weights = weiszfeld(sq, sizes, tolerance)
    if not trustworthy(sq, weights):
        weights = pulls(rows.sq_to(weights), sizes)  # one true step on the data
    return rows.combine(weights)


def gaps_to(sq: Floats, weights: Floats) -> Floats:
    """‖x_i − z‖² of the point z = Σ weights_i·x_i, from ‖x_i − x_j‖²."""
    return np.asarray(np.maximum(sq @ weights - 0.5 * (weights @ sq @ weights), 0.0))


def trustworthy(sq: Floats, weights: Floats) -> bool:
    """Is what `gaps_to` subtracts of the size of what is left?

    Distances have float32's relative error; a row far off with a small weight blows that up.
    """
    return bool((sq @ weights <= 8.0 * gaps_to(sq, weights)).all())


def optimal_row(sq: Floats, sizes: Floats) -> int | None:
    """A row that is the geometric median: the others pull at it with no more than its own weight.

    ‖Σ s_i·u_i‖ ≤ Σ of the sizes at this row, u_i the unit vectors to the other rows.
    """
    for k in np.argsort(np.sqrt(sq) @ sizes)[:2]:
        away = sq[k] > 0
        if pull(sq[np.ix_(away, away)], sq[k, away], sizes[away]) <= sizes[~away].sum():
            return int(k)
    return None


def pull(sq: Floats, gaps: Floats, sizes: Floats) -> float:
    """‖Σ s_i·(x_i − z)/‖x_i − z‖‖ from ‖x_i − z‖² and ‖x_i − x_j‖²."""
    strength = sizes / np.sqrt(gaps)
    products = 0.5 * (gaps[:, None] + gaps[None, :] - sq)
    return math.sqrt(max(0.0, float(strength @ products @ strength)))


def pulls(gaps: Floats, sizes: Floats) -> Floats:
    """Weiszfeld's weights s_i/‖x_i − z‖, normalized."""
    if (gaps == 0).any():
        return np.asarray(np.where(gaps == 0, sizes, 0.0) / sizes[gaps == 0].sum())
    weights = sizes / np.sqrt(gaps)
    return np.asarray(weights / weights.sum())


def weiszfeld(sq: Floats, sizes: Floats, tolerance: float, most: int = 5000) -> Floats:
    """The weights of the geometric median, found in n² numbers without a look at the data.

    Near a row that is almost optimal steps get tiny; it ends when a hundred of them bring nothing.
    One product with the distances is a step: it tells the pull at this point and the next gaps.
    """
    weights, reached, before = sizes, sq @ sizes, np.inf
    for step in range(most):
        gaps = np.maximum(reached - 0.5 * (weights @ reached), 0.0)
        if not gaps.all():
            break
        strength = sizes / np.sqrt(gaps)
        total, reached = strength.sum(), sq @ strength
        gradient_sq = total * (strength @ gaps) - 0.5 * (strength @ reached)  # `pull` squared
        if gradient_sq <= tolerance**2:
            break
        if step % 100 == 0:
            if gradient_sq > 0.98 * before:
                break
            before = gradient_sq
        weights, reached = strength / total, reached / total
    return weights


@register(
    valid="any b",
    cost="nd per step",
    source="Karimireddy et al. 2021",
    weighted=True,
    reference="optional",
    allowed={"tau": "above 0", "iterations": "at least 1"},
)
def centered_clipping(rows: Rows, *, tau: float = 10.0, iterations: int = 3) -> Any:
    """From the reference (zero if none) move by the mean of the differences, cut to length tau."""
    sizes = rows.mean_of(np.arange(rows.n))
    weights, gaps = np.zeros(rows.n), rows.reference_sq  # center = Σ w_i·x_i + (1−Σw)·reference
    for step in range(iterations):
        if step:
            gaps = rows.sq_to(weights, 1 - weights.sum())
        cut = sizes * np.minimum(1.0, tau / np.sqrt(np.maximum(gaps, np.finfo(float).tiny)))
        weights = weights * (1 - cut.sum()) + cut
    return rows.combine(weights, 1 - weights.sum())


@register(valid="any b", cost="nd", source="Cao et al. 2021", reference="needed")
def fltrust(rows: Rows) -> Any:
    """Rows cut to the length of a trusted reference, weighted by their positive cosine with it."""
    lengths = rows.norms * rows.reference_norm
    known = lengths > 0  # a row of length zero has no direction, and no trust
    trust = np.zeros(rows.n)
    trust[known] = np.clip(rows.reference_dot[known] / lengths[known], 0.0, 1.0)
    if trust.sum() == 0:
        return rows.combine(np.zeros(rows.n))
    weights = trust / trust.sum()
    weights[known] *= rows.reference_norm / rows.norms[known]
    return rows.combine(weights)
