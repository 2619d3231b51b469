"""Squared distances between rows, from differences in a cache-sized tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import inner, kernel
from ..parallel import GRID
from ..vectors import HALF, add_gaps, add_own_gaps, fold
from .tiles import ahead, fill, weighted

SHIFT = 4  # a row of a tile has 2^4 lines
TILES = 2  # tiles whose float sums are added up: 64 squares in each lane of float32
HUGE, TINY = 2.0**-72, 2.0**100  # exact rescalings, see `rescue`


@inner
def gap(a: Any, b: Any, before: Any, after: Any) -> Any:
    """Σ ((before·a − before·b)·after)²."""
    total = before - before
    for c in range(a.size):
        v = weighted(before, a[c], -before, b[c]) * after
        total += v * v
    return total


@inner
def rescue(a: Any, b: Any, value: Any, safe: Any) -> float:
    """Redo a sum of squares that left the safe range, scaled by a power of two (exact).

    Too large: differences shrink by 2⁻⁷², so 512 squares of 2·max fit and lost bits are below
    2⁻⁴⁰ of the sum. Too small: grow by 2¹⁰⁰, so that the least denormal has a normal square.
    """
    one, huge, tiny = a.dtype.type(1.0), a.dtype.type(HUGE), a.dtype.type(TINY)
    if value < safe[0]:
        return np.float64(gap(a, b, one, tiny)) / (TINY * TINY)
    if not value <= safe[1]:
        return np.float64(gap(a, b, huge, one)) / (HUGE * HUGE)
    return np.float64(value)


@inner
def add_pairs(tile: Any, sums: Any, x: Any, rows: Any, upcoming: int) -> None:
    """Add to sums, eight pairs of rows at a time, while the next tile is fetched."""
    height, width, block = tile.shape[0], tile.shape[1], 8 * (HALF // x.itemsize)
    share, k = -(-(rows.size << SHIFT) // (height // 4) ** 2), 0
    for i in range(0, height, 4):
        ahead(x, rows, upcoming, SHIFT, k * share, share)
        add_own_gaps(tile, i * width, sums, k * block)
        k += 1
        for j in range(i + 4, height, 4):
            for two in range(i, i + 4, 2):
                ahead(x, rows, upcoming, SHIFT, k * share, share)
                add_gaps(tile, two * width, j * width, sums, k * block)
                k += 1


@inner
def slots(m: int) -> Any:
    """The two rows of each sum of `add_pairs`, (k, 2); both -1 where they are no pair."""
    height = -(-m // 4) * 4
    found, k = np.full((height * height // 2, 2), -1), 0
    for i in range(0, height, 4):
        place = k
        for a in range(i, i + 4):
            for b in range(a + 1, i + 4):
                found[place, 0], found[place, 1] = a, b
                place += 1
        k += 8
        for j in range(i + 4, height, 4):
            for a in range(i, i + 4):
                for b in range(j, j + 4):
                    found[k, 0], found[k, 1] = a, b
                    k += 1
    for k in range(len(found)):
        if found[k, 1] >= m:
            found[k] = -1
    return found


@inner
def scatter(result: Any, of: Any, out: Any) -> None:
    """Add the sums of pairs to the upper half of a matrix; they are then zero."""
    for k in range(result.size):
        if of[k, 0] >= 0:
            out[of[k, 0], of[k, 1]] += result[k]
        result[k] = 0.0


@inner
def collect(
    x: Any, rows: Any, start: int, stop: int, totals: Any, of: Any, limits: Any, bad: Any, out: Any
) -> None:
    """out += totals, in float64; a pair whose total is not within its limits is done again.

    Not so with bad rows: their distances count for nothing, and must not cost the server time.
    """
    low, high, outside = limits[0], limits[1], 0
    for k in range(totals.size):
        outside += not (low[k] <= totals[k] <= high[k])
    if outside == 0:
        for k in range(totals.size):
            out[k] += np.float64(totals[k])
        return
    for k in range(totals.size):
        a, b = of[k, 0], of[k, 1]
        if a >= 0 and not (bad[a] or bad[b]):
            u, v = x[rows[a], start:stop], x[rows[b], start:stop]
            out[k] += rescue(u, v, totals[k], limits[:, k])


@kernel("=T[:,:]", "=int64[:]", "int64", "int64", "int64", "=T[:]", "float64[:,:,:]", "bool[:]")
def pairs(
    x: Any, rows: Any, start: int, stop: int, skip: int, safe: Any, out: Any, bad: Any
) -> None:
    """out[block, i, j] += ‖x_i − x_j‖² over its columns, i < j; `safe` bounds sums of a few.

    A block is GRID columns; the first one begins `skip` columns before the start.
    """
    width, height, of = (64 << SHIFT) // x.itemsize, -(-rows.size // 4) * 4, slots(rows.size)
    limits = np.empty((2, of.shape[0]), dtype=x.dtype)
    for k in range(of.shape[0]):
        limits[0, k] = safe[0] if of[k, 0] >= 0 else -np.inf
        limits[1, k] = safe[1] if of[k, 0] >= 0 else np.inf
    tile, ones = np.zeros((height, width), dtype=x.dtype), np.ones(rows.size, dtype=x.dtype)
    sums = np.zeros(of.shape[0] * (HALF // x.itemsize), dtype=x.dtype)
    totals, result = np.empty(of.shape[0], dtype=x.dtype), np.zeros(of.shape[0])
    for left in range(start, stop, TILES * width):
        right = min(left + TILES * width, stop)
        for first in range(left, right, width):
            last = min(first + width, stop)
            if last - first < width:
                tile[:] = 0.0
            fill(x, rows, first, last, ones, tile, bad)
            add_pairs(tile, sums, x, rows, min(last, max(stop - width, 0)))
        fold(sums, totals)
        collect(x, rows, left, right, totals, of, limits, bad, result)
        if right == stop or (right - start + skip) % GRID == 0:
            scatter(result, of, out[(left - start + skip) // GRID])
