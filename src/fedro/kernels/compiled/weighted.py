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
def gather(sums: Any, dots: Any) -> None:
    """dots[i] += the lanes of its sums, in float64; these are then zero."""
    for i in range(len(sums)):
        for lane in range(sums.shape[1]):
            dots[i] += np.float64(sums[i, lane])
            sums[i, lane] = 0.0


@inner
def product(a: Any, b: Any) -> float:
    """a·b, in float64."""
    total = 0.0
    for c in range(a.size):
        total += np.float64(a[c]) * np.float64(b[c])
    return total


@kernel(
    *("=T[:,:]", "=int64[:]", "int64", "int64", "int64", "=float64[:]", "float64", "=T[:]"),
    *("=T[:]", "T[:]", "float64[:,:]", "bool[:]"),
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
    """out = Σ w_i·x_i + share·base, and dots[block, i] += x_i·r over its columns, the last out·r.

    r is `out` if the reference is empty. Products are made in the type of x: those that are too
    large or too small for it are lost. For blocks see `pairs`.
    """
    room, lanes = np.empty(CHUNK), LINE // x.itemsize
    sums = np.zeros((rows.size, lanes), dtype=x.dtype)
    for left in range(start, stop, CHUNK):
        total = room[: min(CHUNK, stop - left)]
        s, whole = slice(left - start, left - start + total.size), total.size // lanes * lanes
        total[:] = 0.0
        if share != 0.0:
            load(base[s], share, total)
        places, found = rows * x.shape[1] + left, dots[(left - start + skip) // GRID]
        if reference.size:
            near = reference[s]
            weigh_and_multiply(x, places, weights, total[:whole], sums, near[:whole])
        else:
            weigh_and_multiply_out(x, places, weights, total[:whole], sums)
        weigh_rest(x, rows, left, whole, weights, total)
        load(total, 1.0, out[s])
        near = reference[s] if reference.size else out[s]
        gather(sums, found)
        for i in range(rows.size):
            found[i] += product(x[rows[i], left + whole : left + total.size], near[whole:])
        found[rows.size] += product(total, near)
        find_bad(x, rows, left, total, bad)
