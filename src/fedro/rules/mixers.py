"""Mixers: they turn rows into rows that are closer together, for a rule after them."""

import numpy as np

from fedro.common.options import ABOVE_ZERO, AT_LEAST_ONE
from fedro.rules import kappa
from fedro.rules.coordinate import clip_factors
from fedro.rules.registration import register
from fedro.rules.rows import Rows
from fedro.rules.table import ANY


@register(
    mixer=True,
    cost="n²d",
    source="Allouah et al. 2023",
    kappa=kappa.nnm,
    kappa_source="own",
)
def nnm(rows: Rows) -> Rows:
    """Nearest-neighbor mixing: each row becomes the mean of its n−b nearest rows, itself included.

    "Nearest-neighbor mixing": y_i = (1/(n−b))·Σ x_j over the n−b rows j that are nearest to x_i.

    Example:
        >>> from fedro.rules import median
        >>> rule = nnm() | median(b=1)
        >>> rule(np.array([[1.0], [2.0], [3.0], [1e9]]))
        array([2.])
    """
    sq = rows.sq.copy()
    np.fill_diagonal(sq, -1.0)  # the row itself comes first, also among equal rows
    nearest = np.argsort(sq, axis=1, kind="stable")[:, : rows.n - rows.b]
    return rows.averaged(list(np.sort(nearest, axis=1)))


@register(
    mixer=True, valid=ANY, cost="nd", source="Karimireddy et al. 2022", ranges={"s": AT_LEAST_ONE}
)
def bucketing(rows: Rows, *, s: int = 2) -> Rows:
    """Averages s rows at a time, in random order. The next stage needs b below half of ⌈n/s⌉.

    Args:
        s: Rows per bucket. The last bucket may have fewer.

    Example:
        >>> from fedro.rules import median
        >>> rule = bucketing(s=2) | median(b=1)
        >>> float(rule(np.array([[1.0], [1.0], [1.0], [1.0], [1.0], [1e9]]))[0])
        1.0
    """
    order = rows.rng.permutation(rows.n)
    return rows.averaged([np.sort(order[i : i + s]) for i in range(0, rows.n, s)])


@register(
    mixer=True,
    cost="nd",
    source="Allouah et al. 2025",
    kappa=kappa.arc,
    kappa_source="Allouah et al. 2025",
)
def arc(rows: Rows) -> Rows:
    """Shortens the k = ⌊2b(n−b)/n⌋ longest rows to the length of the next longest.

    "Adaptive robust clipping": the limit follows the rows, so there is nothing to tune.

    Example:
        >>> from fedro.rules import trimmed_mean
        >>> rule = arc() | trimmed_mean(b=1)
        >>> rule(np.array([[1.0], [2.0], [3.0], [1e9]]))
        array([2.])
    """
    rows.drop_far()  # float32 has no factor that would shorten them well
    k = 2 * rows.b * (rows.n - rows.b) // rows.n
    limit = np.sort(rows.norms)[rows.n - 1 - k]
    factors = np.ones(rows.n)
    longer = rows.norms > limit
    factors[longer] = limit / rows.norms[longer]
    return rows.scaled(factors)


@register(mixer=True, valid=ANY, cost="nd", source="Sun et al. 2019", ranges={"limit": ABOVE_ZERO})
def clip(rows: Rows, *, limit: float) -> Rows:
    """Shortens every row to a length of at most `limit`; no fixed limit is robust.

    y_i = min(1, limit/‖x_i‖)·x_i.

    Args:
        limit: Largest length of a row.

    Example:
        >>> from fedro.rules import mean
        >>> rule = clip(limit=2.0) | mean()
        >>> rule(np.array([[1.0], [1.0], [1e9], [2.0]]))
        array([1.5])
    """
    return rows.scaled(clip_factors(rows, limit))


@register(
    mixer=True,
    valid=ANY,
    cost="nd",
    source="Malinovsky et al. 2024",
    reference="optional",
    ranges={"factor": ABOVE_ZERO},
)
def clip_step(rows: Rows, *, factor: float = 3.0) -> Rows:
    """Shortens rows to at most `factor` times the reference's length (in a run: last aggregate).

    A round in which most of the sampled clients are Byzantine then does no more harm than a few
    ordinary steps. In the first round there is no reference, and nothing is clipped.

    Args:
        factor: Largest length of a row, in lengths of the reference.

    Example:
        >>> from fedro.rules import mean
        >>> rule = clip_step(factor=2.0) | mean()
        >>> rule(np.array([[1.0], [1.0], [1e9], [2.0]]), reference=np.array([1.0]))
        array([1.5])
    """
    if not rows.has_reference:
        return rows
    return rows.scaled(clip_factors(rows, factor * rows.reference_norm))
