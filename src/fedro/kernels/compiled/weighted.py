"""Weighted sums of rows, and inner products with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import inner, kernel
from ..parallel import GRID
from ..vectors import LINE, blend_and_multiply, blend_rows, weigh_rows
from .tiles import holds_bad, load

CHUNK = 1024  # columns whose sums are in the cache together
GROUP = 16  # rows that go by side by side: of more, what was fetched is gone before it is used


@inner
def find_bad(x: Any, rows: Any, left: int, right: int, bad: Any) -> None:
    """Which rows hold NaN or Inf."""
    for i in range(rows.size):
        bad[i] |= holds_bad(x[rows[i], left:right])


@inner
def weigh(x: Any, rows: Any, left: int, weights: Any, total: Any, bad: Any) -> None:
    """total += Σ w_i·x_i over the columns from left on, in float64: no sum is too large for it."""
    whole = total.size - total.size % (LINE // x.itemsize)
    places = rows * x.shape[1] + left
    for first in range(0, rows.size, GROUP):
        some = slice(first, first + GROUP)
        weigh_rows(x, places[some], weights[some], total[:whole])
    for c in range(whole, total.size):
        for i in range(rows.size):
            total[c] += weights[i] * x[rows[i], left + c]
    if holds_bad(total):
        find_bad(x, rows, left, left + total.size, bad)


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
    lanes = LINE // x.itemsize
    sums, own = np.zeros((rows.size, lanes), dtype=x.dtype), np.zeros(lanes)
    zeros = np.zeros(CHUNK, dtype=x.dtype)
    for left in range(start, stop, CHUNK):
        width = min(CHUNK, stop - left)
        s, whole = slice(left - start, left - start + width), width // lanes * lanes
        places, found = rows * x.shape[1] + left, dots[(left - start + skip) // GRID]
        first, value, near = base[s] if base.size else zeros[:width], out[s], reference[s]
        line = first[:whole], value[:whole]
        if reference.size:
            blend_and_multiply(x, places, weights, own, share, *line, sums, near[:whole])
        else:
            blend_rows(x, places, weights, own, share, *line, sums)
        for c in range(whole, width):
            total = share * first[c]
            for i in range(rows.size):
                total += weights[i] * x[rows[i], left + c]
            value[c] = total
            r = near[c] if reference.size else value[c]
            own[0] += total * r
            for i in range(rows.size):
                found[i] += np.float64(x[rows[i], left + c]) * r
        gather(sums, found)
        product = own.sum()
        own[:] = 0.0
        found[rows.size] += product
        if not np.isfinite(product):
            find_bad(x, rows, left, left + width, bad)
