"""Norms and inner products of rows, weighted sums of rows, and moments of columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compilation import inner, kernel
from ..parallel import GRID
from ..vectors import (
    LINE,
    add_weighted_rows,
    blend_rows,
    blend_rows_with_reference,
    column_moments,
)
from .tiles import copy_scaled, has_nonfinite

LONG_CHUNK = 8192  # columns of a row that `facts` reads at a time
CHUNK = 1024  # columns whose sums stay in the cache; moments are recomputed for so many at a time
MAX_ROWS_TOGETHER = 16  # with more, prefetched lines leave the cache before they are used


@inner
def add_facts(row: Any, reference: Any, out: Any) -> None:
    """Add ‖row‖², row·reference and ‖row − reference‖² to out, in float64."""
    squared = product = distance = 0.0
    for c in range(row.size):
        v, r = np.float64(row[c]), np.float64(reference[c])
        squared += v * v
        product += v * r
        distance += (v - r) * (v - r)
    out[0] += squared
    out[1] += product
    out[2] += distance


@inner
def add_facts4(a: Any, b: Any, c: Any, d: Any, reference: Any, out: Any) -> None:
    """`add_facts` for four rows: a single row would wait for its additions, not for the memory."""
    s0 = s1 = s2 = s3 = p0 = p1 = p2 = p3 = g0 = g1 = g2 = g3 = 0.0
    for k in range(reference.size):
        r = np.float64(reference[k])
        v0, v1, v2, v3 = np.float64(a[k]), np.float64(b[k]), np.float64(c[k]), np.float64(d[k])
        s0 += v0 * v0
        s1 += v1 * v1
        s2 += v2 * v2
        s3 += v3 * v3
        p0 += v0 * r
        p1 += v1 * r
        p2 += v2 * r
        p3 += v3 * r
        g0 += (v0 - r) * (v0 - r)
        g1 += (v1 - r) * (v1 - r)
        g2 += (v2 - r) * (v2 - r)
        g3 += (v3 - r) * (v3 - r)
    add_to_column(out, 0, s0, s1, s2, s3)
    add_to_column(out, 1, p0, p1, p2, p3)
    add_to_column(out, 2, g0, g1, g2, g3)


@inner
def add_to_column(out: Any, column: int, a: float, b: float, c: float, d: float) -> None:
    """Add four numbers to a column of four rows."""
    out[0, column] += a
    out[1, column] += b
    out[2, column] += c
    out[3, column] += d


@kernel("=T[:,:]", "=int64[:]", "int64", "int64", "int64", "=T[:]", "float64[:,:,:]", "bool[:]")
def facts(
    x: Any, rows: Any, start: int, stop: int, skip: int, reference: Any, out: Any, bad: Any
) -> None:
    """out[block, i] += (‖x_i‖², x_i·r, ‖x_i − r‖²); reference[0] belongs to column `start`."""
    fours = rows.size // 4 * 4
    for left in range(start, stop, LONG_CHUNK):
        right, sums = min(left + LONG_CHUNK, stop), out[(left - start + skip) // GRID]
        s, r = slice(left, right), reference[left - start : right - start]
        for i in range(0, fours, 4):
            a, b, c, d = x[rows[i]], x[rows[i + 1]], x[rows[i + 2]], x[rows[i + 3]]
            add_facts4(a[s], b[s], c[s], d[s], r, sums[i : i + 4])
        for i in range(fours, rows.size):
            add_facts(x[rows[i], left:right], r, sums[i])
        for i in range(rows.size):
            if not sums[i, 0] < np.inf:
                bad[i] |= has_nonfinite(x[rows[i], left:right])


@inner
def flag_nonfinite(x: Any, rows: Any, left: int, right: int, bad: Any) -> None:
    """Set `bad` for the rows that hold NaN or Inf in these columns."""
    for i in range(rows.size):
        bad[i] |= has_nonfinite(x[rows[i], left:right])


@inner
def add_weighted(x: Any, rows: Any, left: int, weights: Any, total: Any, bad: Any) -> None:
    """total += Σ w_i·x_i over the columns from left on, in float64, which no sum overflows."""
    whole = total.size - total.size % (LINE // x.itemsize)
    positions = rows * x.shape[1] + left
    for first in range(0, rows.size, MAX_ROWS_TOGETHER):
        some = slice(first, first + MAX_ROWS_TOGETHER)
        add_weighted_rows(x, positions[some], weights[some], total[:whole])
    for c in range(whole, total.size):
        for i in range(rows.size):
            total[c] += weights[i] * x[rows[i], left + c]
    if has_nonfinite(total):
        flag_nonfinite(x, rows, left, left + total.size, bad)


@kernel("=T[:,:]", "=int64[:]", "int64", "int64", "=float64[:]", "T[:]", "bool[:]")
def combine(x: Any, rows: Any, start: int, stop: int, weights: Any, out: Any, bad: Any) -> None:
    """out = Σ w_i·x_i."""
    buffer = np.empty(CHUNK)
    for left in range(start, stop, CHUNK):
        total = buffer[: min(CHUNK, stop - left)]
        total[:] = 0.0
        add_weighted(x, rows, left, weights, total, bad)
        copy_scaled(total, 1.0, out[left - start : left - start + total.size])


@inner
def collect_lanes(sums: Any, dots: Any) -> None:
    """dots[i] += the lanes of sums[i], in float64, which are then set to zero."""
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
    """out = Σ w_i·x_i + share·base, and dots[block, i] += x_i·r, of which the last is out·r.

    r is `out` if the reference is empty. Products are computed in the type of x, so those that
    overflow or underflow are lost.
    """
    lanes = LINE // x.itemsize
    sums, own = np.zeros((rows.size, lanes), dtype=x.dtype), np.zeros(lanes)
    zeros = np.zeros(CHUNK, dtype=x.dtype)
    for left in range(start, stop, CHUNK):
        width = min(CHUNK, stop - left)
        s, whole = slice(left - start, left - start + width), width // lanes * lanes
        positions, products = rows * x.shape[1] + left, dots[(left - start + skip) // GRID]
        first, value, near = base[s] if base.size else zeros[:width], out[s], reference[s]
        line = first[:whole], value[:whole]
        if reference.size:
            blend_rows_with_reference(x, positions, weights, own, share, *line, sums, near[:whole])
        else:
            blend_rows(x, positions, weights, own, share, *line, sums)
        for c in range(whole, width):
            total = share * first[c]
            for i in range(rows.size):
                total += weights[i] * x[rows[i], left + c]
            value[c] = total
            r = near[c] if reference.size else value[c]
            own[0] += total * r
            for i in range(rows.size):
                products[i] += np.float64(x[rows[i], left + c]) * r
        collect_lanes(sums, products)
        product = own.sum()
        own[:] = 0.0
        products[rows.size] += product
        if not np.isfinite(product):
            flag_nonfinite(x, rows, left, left + width, bad)


@inner
def exact_moments(x: Any, rows: Any, left: int, right: int, mean: Any, std: Any, bad: Any) -> None:
    """Mean and deviation of the columns left..right-1, in float64."""
    share, center, total = 1.0 / rows.size, np.zeros(right - left), np.zeros(right - left)
    add_weighted(x, rows, left, np.full(rows.size, share), center, bad)
    for i in range(rows.size):
        row = x[rows[i], left:right]
        for c in range(total.size):
            gap = row[c] - center[c]
            total[c] += share * (gap * gap)
    copy_scaled(center, 1.0, mean)
    for c in range(total.size):
        std[c] = np.sqrt(total[c])


@kernel("=T[:,:]", "=int64[:]", "int64", "int64", "T[:]", "T[:]", "bool[:]")
def moments(x: Any, rows: Any, start: int, stop: int, mean: Any, std: Any, bad: Any) -> None:
    """Mean and deviation (1/n) of the columns; in float64 where the fast way is not exact."""
    positions = rows * x.shape[1] + start
    for left in range(start, stop, CHUNK):
        right = min(left + CHUNK, stop)
        m, s = mean[left - start : right - start], std[left - start : right - start]
        if right - left < CHUNK or not column_moments(x, positions, rows.size, m, s):
            exact_moments(x, rows, left, right, m, s, bad)
        positions += CHUNK
