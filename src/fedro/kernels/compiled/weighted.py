"""Weighted sums of rows, and inner products with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import inner, kernel
from ..parallel import GRID
from ..vectors import LINE, dot_rows, weigh_rows
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


@inner
def multiply(x: Any, rows: Any, left: int, other: Any, out: Any) -> None:
    """out[i] += x_i·other over the columns from left on, in float64."""
    lanes = LINE // x.itemsize
    whole = other.size // lanes * lanes
    dot_rows(x, rows * x.shape[1] + left, other[:whole], out)
    for i in range(rows.size):
        for c in range(whole, other.size):
            out[i] += x[rows[i], left + c] * other[c]


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
    """out = Σ w_i·x_i + share·base, dots[block, i] += x_i·r over its columns, the last out·r.

    r is `out` if the reference is empty. For blocks see `pairs`.
    """
    total, other = np.empty(CHUNK), np.empty(CHUNK)
    for left in range(start, stop, CHUNK):
        right = min(left + CHUNK, stop)
        part, s = total[: right - left], slice(left - start, right - start)
        weigh(x, rows, left, right, weights, part, bad)
        if share != 0.0:
            near = base[s]
            for c in range(part.size):
                part[c] += share * near[c]
        load(part, 1.0, out[s])
        near = part
        if reference.size:
            near = other[: right - left]
            load(reference[s], 1.0, near)
        found = dots[(left - start + skip) // GRID]
        multiply(x, rows, left, near, found)
        own = 0.0
        for c in range(part.size):
            own += part[c] * near[c]
        found[rows.size] += own
