"""Weighted sums of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import inner, kernel
from ..vectors import LINE, weigh_rows
from .tiles import holds_bad, load

CHUNK = 1024  # columns whose sums are in the cache together


@inner
def weigh(x: Any, rows: Any, left: int, right: int, weights: Any, total: Any, bad: Any) -> None:
    """total = Σ w_i·x_i over the columns left..right-1, in float64: no sum is too large for it."""
    lanes = LINE // x.itemsize
    whole = total.size // lanes * lanes
    weigh_rows(x, rows * x.shape[1] + left, weights, total[:whole])
    for c in range(whole, total.size):
        total[c] = 0.0
        for i in range(rows.size):
            total[c] += weights[i] * x[rows[i], left + c]
    if holds_bad(total):
        for i in range(rows.size):
            bad[i] |= holds_bad(x[rows[i], left:right])


@kernel("=T[:,:]", "=int64[:]", "int64", "int64", "=float64[:]", "T[:]", "bool[:]")
def combine(x: Any, rows: Any, start: int, stop: int, weights: Any, out: Any, bad: Any) -> None:
    """out = Σ w_i·x_i over the columns."""
    total = np.empty(CHUNK)
    for left in range(start, stop, CHUNK):
        right = min(left + CHUNK, stop)
        part = total[: right - left]
        weigh(x, rows, left, right, weights, part, bad)
        load(part, 1.0, out[left - start : right - start])
