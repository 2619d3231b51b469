"""Squared distances between rows, from differences in a cache-sized tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compilation import inner, kernel
from ..parallel import GRID
from ..vectors import (
    HALF,
    add_squared_differences,
    add_squared_differences_within,
    column_moments_and_tile,
    sum_lanes,
)
from .sums import exact_moments
from .tiles import fill_tile, prefetch_lines, weighted_pair

SHIFT = 4  # a row of a tile has 2^4 lines
TILES = 2  # tiles summed in the type of x before float64: 64 squares in each lane of float32
SHRINK, GROW = 2.0**-72, 2.0**100  # powers of two, so scaling is exact; see `rescale`


@inner
def scaled_distance(a: Any, b: Any, before: Any, after: Any) -> Any:
    """Σ ((before·a − before·b)·after)²."""
    total = before - before
    for c in range(a.size):
        v = weighted_pair(before, a[c], -before, b[c]) * after
        total += v * v
    return total


@inner
def rescale(a: Any, b: Any, value: Any, safe: Any) -> float:
    """Recompute a sum of squares that left the safe range, scaled by a power of two (exact).

    Too large: differences shrink by 2⁻⁷², so 512 squares of 2·max fit and lost bits are below
    2⁻⁴⁰ of the sum. Too small: grow by 2¹⁰⁰, so that the least denormal has a normal square.
    """
    one, shrink, grow = a.dtype.type(1.0), a.dtype.type(SHRINK), a.dtype.type(GROW)
    if value < safe[0]:
        return np.float64(scaled_distance(a, b, one, grow)) / (GROW * GROW)
    if not value <= safe[1]:
        return np.float64(scaled_distance(a, b, shrink, one)) / (SHRINK * SHRINK)
    return np.float64(value)


@inner
def add_pairs(tile: Any, sums: Any, x: Any, rows: Any, next_tile: int) -> None:
    """Add to sums, eight pairs of rows at a time, while the next tile is prefetched."""
    height, width, block = tile.shape[0], tile.shape[1], 8 * (HALF // x.itemsize)
    share, k = -(-(rows.size << SHIFT) // (height // 4) ** 2), 0
    for i in range(0, height, 4):
        prefetch_lines(x, rows, next_tile, SHIFT, k * share, share)
        add_squared_differences_within(tile, i * width, sums, k * block)
        k += 1
        for j in range(i + 4, height, 4):
            for two in range(i, i + 4, 2):
                prefetch_lines(x, rows, next_tile, SHIFT, k * share, share)
                add_squared_differences(tile, two * width, j * width, sums, k * block)
                k += 1


@inner
def pairs_of_sums(m: int) -> Any:
    """The two rows of each sum of `add_pairs`, (k, 2); both -1 where a sum is unused."""
    height = -(-m // 4) * 4
    pairs, k = np.full((height * height // 2, 2), -1), 0
    for i in range(0, height, 4):
        within = k
        for a in range(i, i + 4):
            for b in range(a + 1, i + 4):
                pairs[within, 0], pairs[within, 1] = a, b
                within += 1
        k += 8
        for j in range(i + 4, height, 4):
            for a in range(i, i + 4):
                for b in range(j, j + 4):
                    pairs[k, 0], pairs[k, 1] = a, b
                    k += 1
    for k in range(len(pairs)):
        if pairs[k, 1] >= m:
            pairs[k] = -1
    return pairs


@inner
def add_to_matrix(result: Any, pairs: Any, out: Any) -> None:
    """Add the sums of pairs to the upper half of a matrix; the sums are then set to zero."""
    for k in range(result.size):
        if pairs[k, 0] >= 0:
            out[pairs[k, 0], pairs[k, 1]] += result[k]
        result[k] = 0.0


@inner
def add_checked(
    x: Any,
    rows: Any,
    start: int,
    stop: int,
    totals: Any,
    pairs: Any,
    limits: Any,
    bad: Any,
    out: Any,
) -> None:
    """out += totals, in float64; a pair whose total is outside its limits is computed again.

    Bad rows are skipped: their distances are not used, and must not cost the server time.
    """
    low, high, outside = limits[0], limits[1], 0
    for k in range(totals.size):
        outside += not (low[k] <= totals[k] <= high[k])
    if outside == 0:
        for k in range(totals.size):
            out[k] += np.float64(totals[k])
        return
    for k in range(totals.size):
        a, b = pairs[k, 0], pairs[k, 1]
        if a >= 0 and not (bad[a] or bad[b]):
            u, v = x[rows[a], start:stop], x[rows[b], start:stop]
            out[k] += rescale(u, v, totals[k], limits[:, k])


@kernel("=T[:,:]", "=int64[:]", "int64", "int64", "int64", "=T[:]", "float64[:,:,:]", "bool[:]")
def distances(
    x: Any, rows: Any, start: int, stop: int, skip: int, safe: Any, out: Any, bad: Any
) -> None:
    """out[block, i, j] += ‖x_i − x_j‖², i < j; sums outside `safe` are computed again, rescaled."""
    width, height = (64 << SHIFT) // x.itemsize, -(-rows.size // 4) * 4
    pairs = pairs_of_sums(rows.size)
    limits = np.empty((2, pairs.shape[0]), dtype=x.dtype)
    for k in range(pairs.shape[0]):
        limits[0, k] = safe[0] if pairs[k, 0] >= 0 else -np.inf
        limits[1, k] = safe[1] if pairs[k, 0] >= 0 else np.inf
    tile, ones = np.zeros((height, width), dtype=x.dtype), np.ones(rows.size, dtype=x.dtype)
    sums = np.zeros(pairs.shape[0] * (HALF // x.itemsize), dtype=x.dtype)
    totals, result = np.empty(pairs.shape[0], dtype=x.dtype), np.zeros(pairs.shape[0])
    for left in range(start, stop, TILES * width):
        right = min(left + TILES * width, stop)
        for first in range(left, right, width):
            last = min(first + width, stop)
            if last - first < width:
                tile[:] = 0.0
            fill_tile(x, rows, first, last, ones, tile, bad)
            add_pairs(tile, sums, x, rows, min(last, max(stop - width, 0)))
        sum_lanes(sums, totals)
        add_checked(x, rows, left, right, totals, pairs, limits, bad, result)
        if right == stop or (right - start + skip) % GRID == 0:
            add_to_matrix(result, pairs, out[(left - start + skip) // GRID])


@inner
def fill_centered(x: Any, rows: Any, left: int, right: int, mean: Any, std: Any, tile: Any) -> None:
    """Fill a tile as `column_moments_and_tile` does, also for fewer columns than it has."""
    tile[:] = 0.0
    for i in range(rows.size):
        tile[i, : right - left] = x[rows[i], left:right] - mean
    tile[rows.size, : right - left] = std


@kernel(
    *("=T[:,:]", "=int64[:]", "int64", "int64", "int64"),
    *("T[:]", "T[:]", "float64[:,:,:]", "bool[:]"),
)
def geometry(
    x: Any, rows: Any, start: int, stop: int, skip: int, mean: Any, std: Any, out: Any, bad: Any
) -> None:
    """Mean and deviation of the columns, and out[block, i, j] += ‖x_i − x_j‖², i < j <= m.

    The row after the last one is mean + deviation. Squares that overflow or underflow are lost;
    the caller detects that from the sums.
    """
    count, width, pairs = rows.size, (64 << SHIFT) // x.itemsize, pairs_of_sums(rows.size + 1)
    tile = np.zeros((count // 4 * 4 + 4, width), dtype=x.dtype)
    positions = rows * x.shape[1] + start
    sums = np.zeros(pairs.shape[0] * (HALF // x.itemsize), dtype=x.dtype)
    totals, result = np.empty(pairs.shape[0], dtype=x.dtype), np.zeros(pairs.shape[0])
    for left in range(start, stop, width):
        right = min(left + width, stop)
        m, s = mean[left - start : right - start], std[left - start : right - start]
        if right - left < width or not column_moments_and_tile(x, positions, count, m, s, tile):
            exact_moments(x, rows, left, right, m, s, bad)
            fill_centered(x, rows, left, right, m, s, tile)
        add_pairs(tile, sums, x, rows, min(right, max(stop - width, 0)))
        positions += width
        if right == stop or (right - start) % (TILES * width) == 0:
            sum_lanes(sums, totals)
            for k in range(result.size):
                result[k] += totals[k]
        if right == stop or (right - start + skip) % GRID == 0:
            add_to_matrix(result, pairs, out[(left - start + skip) // GRID])
