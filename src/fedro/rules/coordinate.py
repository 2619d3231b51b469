"""Rules that average all rows, or work on each coordinate by itself."""

from typing import Any

import numpy as np

from fedro.common.options import ABOVE_ZERO
from fedro.rules import kappa
from fedro.rules.registration import register
from fedro.rules.rows import Floats, Rows
from fedro.rules.table import ANY


@register(valid=ANY, cost="nd", weighted=True, kappa=kappa.mean, kappa_source="trivial")
def mean(rows: Rows) -> Any:
    """The plain average, which a single Byzantine row can move anywhere.

    A = (1/n)·Σ x_i.

    Example:
        >>> mean()(np.array([[1.0], [2.0], [6.0]]))
        array([3.])
    """
    return rows.combine(rows.mean_of(np.arange(rows.n)))


@register(cost="nd log n", source="Yin et al. 2018", kappa=kappa.median, kappa_source="own")
def median(rows: Rows) -> Any:
    """Per coordinate the middle value; for even n the midpoint of the two middle values.

    Example:
        >>> median(b=1)(np.array([[1.0], [2.0], [1e9]]))
        array([2.])
    """
    return rows.band((rows.n - 1) // 2, rows.n // 2 + 1)


@register(cost="nd log n", source="Yin et al. 2018", kappa=kappa.trimmed_mean, kappa_source="own")
def trimmed_mean(rows: Rows) -> Any:
    """Per coordinate the mean without the b lowest and the b highest values.

    No rule has a smaller κ.

    Example:
        >>> trimmed_mean(b=1)(np.array([[1.0], [2.0], [4.0], [1e9]]))
        array([3.])
    """
    return rows.band(rows.b, rows.n - rows.b)


@register(cost="nd log n", source="Xie et al. 2018", kappa=kappa.meamed, kappa_source="own")
def meamed(rows: Rows) -> Any:
    """Per coordinate the mean of the n−b values nearest the median ("mean around median").

    Example:
        >>> meamed(b=1)(np.array([[1.0], [2.0], [6.0], [1e9]]))
        array([3.])
    """
    return rows.band(0, rows.n, nearest=rows.n - rows.b)


@register(
    valid=ANY, cost="nd", source="Sun et al. 2019", weighted=True, ranges={"limit": ABOVE_ZERO}
)
def norm_clip(rows: Rows, *, limit: float) -> Any:
    """Mean of the rows, each shortened to a length of at most `limit`; bounded, not robust.

    A = (1/n)·Σ min(1, limit/‖x_i‖)·x_i.

    Args:
        limit: Largest length of a row.

    Example:
        >>> norm_clip(limit=2.0)(np.array([[1.0], [1.0], [1e9], [2.0]]))
        array([1.5])
    """
    return rows.combine(clip_factors(rows, limit) * rows.mean_of(np.arange(rows.n)))


def clip_factors(rows: Rows, limit: float) -> Floats:
    """Return min(1, limit/‖x_i‖), the factors that shorten the rows to `limit`."""
    return np.asarray(limit / np.maximum(rows.norms, max(limit, np.finfo(float).tiny)))
