"""Rules that average, or work on each coordinate by itself."""

from typing import Any

import numpy as np

from fedro.rules.rows import Rows
from fedro.rules.table import register


@register(valid="any b", cost="nd", weighted=True)
def mean(rows: Rows) -> Any:
    """Plain averaging; robust to no bad row."""
    return rows.combine(rows.mean_of(np.arange(rows.n)))


@register(cost="nd log n", source="Yin et al. 2018")
def median(rows: Rows) -> Any:
    """Per coordinate the middle value; the midpoint of two for even n."""
    return rows.band((rows.n - 1) // 2, rows.n // 2 + 1)


@register(cost="nd log n", source="Yin et al. 2018")
def trimmed_mean(rows: Rows) -> Any:
    """Per coordinate the mean without the b lowest and the b highest values."""
    return rows.band(rows.b, rows.n - rows.b)


@register(cost="nd log n", source="Xie et al. 2018")
def meamed(rows: Rows) -> Any:
    """Per coordinate the mean of the n−b values nearest the median."""
    return rows.band(0, rows.n, nearest=rows.n - rows.b)


@register(
    valid="any b",
    cost="nd",
    source="Sun et al. 2019",
    weighted=True,
    allowed={"limit": "above 0"},
)
def norm_clip(rows: Rows, *, limit: float) -> Any:
    """Mean of the rows, each shortened to a length of at most `limit`; bounded, not robust."""
    return rows.combine(clip_factors(rows, limit) * rows.mean_of(np.arange(rows.n)))


def clip_factors(rows: Rows, limit: float) -> Any:
    """min(1, limit/‖x_i‖)."""
    return limit / np.maximum(rows.norms, max(limit, np.finfo(float).tiny))
