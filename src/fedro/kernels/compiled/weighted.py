"""Weighted sums of rows, and inner products with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import inner, kernel
from ..parallel import GRID
from ..vectors import LINE, weigh_and_multiply, weigh_and_multiply_out, weigh_rows
from .tiles import holds_bad, load

CHUNK = 1024  # columns whose sums are in the cache together


@inner
def weigh_rest(x: Any, rows: Any, left: int, first: int, weights: Any, total: Any) -> None:
    """total += Σ w_i·x_i for the columns from `first` on, of those that begin at left."""
    for c in range(first, total.size):
        for i in range(rows.size):
            total[c] += weights[i] * x[rows[i], left + c]


@inner
def find_bad(x: Any, rows: Any, left: int, total: Any, bad: Any) -> None:
    """Which rows hold NaN or Inf, if their sum does: in float64 no sum of others is too large."""
    if holds_bad(total):
        for i in range(rows.size):
            bad[i] |= holds_bad(x[rows[i], left : left + total.size])


@inner
def weigh(x: Any, rows: Any, left: int, weights: Any, total: Any, bad: Any) -> None:
    """total += Σ w_i·x_i over the columns from left on, in float64."""
    whole = total.size - total.size % (LINE // x.itemsize)
    weigh_rows(x, rows * x.shape[1] + left, weights, total[:whole])
    weigh_rest(x, rows, left, whole, weights, total)
    find_bad(x, rows, left, total, bad)


@kernel("=T[:,:]", "=int64[:]", "int64", "int64", "=float64[:]", "T[:]", "bool[:]")
def combine(x: Any, rows: Any, start: int, stop: int, weights: Any, out: Any, bad: Any) -> None:
    """out = Σ w_i·x_i over the columns."""
    room = np.empty(CHUNK)
    for left in range(start, stop, CHUNK):
        total = room[: min(CHUNK, stop - left)]
        total[:] = 0.0
        weigh(x, rows, left, weights, total, bad)
        load(total, 1.0, out[left - start : left - start + total.size])


@inner
def multiply_rest(x: Any, rows: Any, left: int, first: int, other: Any, dots: Any) -> None:
    """Add x_i·other for the columns from `first` on, of those that begin at left."""
    for i in range(rows.size):
        for c in range(first, other.size):
            dots[i, 0] += x[rows[i], left + c] * other[c]


@kernel(
    *("=T[:,:]", "=int64[:]", "int64", "int64", "int64", "=float64[:]", "float64", "=T[:]"),
    *("=T[:]", "T[:]", "float64[:,:,:]", "bool[:]"),
)
def blend(
    x: Any,
    rows: Any,
    start: int,
    stop: int,
    skip: int,
    weights: Any,
    share: float,
    base: Any,
    reference: Any,
    out: Any,
    dots: Any,
    bad: Any,
) -> None:
    """out = Σ w_i·x_i + share·base, and dots[block, i] += x_i·r over its columns, in four sums.

    The row of dots after the last one is for out·r; r is `out` if the reference is empty. For
    blocks see `pairs`.
    """
    room, other = np.empty(CHUNK), np.empty(CHUNK)
    for left in range(start, stop, CHUNK):
        total = room[: min(CHUNK, stop - left)]
        s, whole = slice(left - start, left - start + total.size), total.size // LINE * LINE
        total[:] = 0.0
        if share != 0.0:
            load(base[s], share, total)
        places, found = rows * x.shape[1] + left, dots[(left - start + skip) // GRID]
        near = total
        if reference.size:
            near = other[: total.size]
            load(reference[s], 1.0, near)
            weigh_and_multiply(x, places, weights, total[:whole], found, near[:whole])
        else:
            weigh_and_multiply_out(x, places, weights, total[:whole], found)
        weigh_rest(x, rows, left, whole, weights, total)
        multiply_rest(x, rows, left, whole, near, found)
        find_bad(x, rows, left, total, bad)
        load(total, 1.0, out[s])
        own = 0.0
        for c in range(total.size):
            own += total[c] * near[c]
        found[rows.size, 0] += own
