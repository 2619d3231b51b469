"""Mean and deviation of the columns, with or without the distances between the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import inner, kernel
from ..parallel import GRID
from ..vectors import HALF, fold, spread_rows, spread_tile
from .pairwise import SHIFT, TILES, add_pairs, scatter, slots
from .tiles import load
from .weighted import weigh

CHUNK = 1024  # columns whose moments are computed anew, in float64, if that is needed for one


@inner
def careful(x: Any, rows: Any, left: int, right: int, mean: Any, std: Any, bad: Any) -> None:
    """Mean and deviation of the columns left..right-1, in float64."""
    share, center, total = 1.0 / rows.size, np.zeros(right - left), np.zeros(right - left)
    weigh(x, rows, left, np.full(rows.size, share), center, bad)
    for i in range(rows.size):
        row = x[rows[i], left:right]
        for c in range(total.size):
            gap = row[c] - center[c]
            total[c] += share * (gap * gap)
    load(center, 1.0, mean)
    for c in range(total.size):
        std[c] = np.sqrt(total[c])


@kernel("=T[:,:]", "=int64[:]", "int64", "int64", "T[:]", "T[:]", "bool[:]")
def moments(x: Any, rows: Any, start: int, stop: int, mean: Any, std: Any, bad: Any) -> None:
    """Mean and deviation (1/n) of the columns."""
    places = rows * x.shape[1] + start
    for left in range(start, stop, CHUNK):
        right = min(left + CHUNK, stop)
        middle, near = mean[left - start : right - start], std[left - start : right - start]
        if right - left < CHUNK or not spread_rows(x, places, rows.size, middle, near):
            careful(x, rows, left, right, middle, near, bad)
        places += CHUNK


@inner
def put(x: Any, rows: Any, left: int, right: int, mean: Any, std: Any, tile: Any) -> None:
    """What `spread_tile` puts into a tile, for columns that may be fewer."""
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
    """Mean and deviation, and out[block, i, j] += ‖x_i − x_j‖² over its columns, i < j <= m.

    The row after the last one is mean + deviation. Squares that are too large or too small for
    their type are lost: the caller sees that in the sums. For blocks see `pairs`.
    """
    m, width, of = rows.size, (64 << SHIFT) // x.itemsize, slots(rows.size + 1)
    tile, places = np.zeros((m // 4 * 4 + 4, width), dtype=x.dtype), rows * x.shape[1] + start
    sums = np.zeros(of.shape[0] * (HALF // x.itemsize), dtype=x.dtype)
    totals, result = np.empty(of.shape[0], dtype=x.dtype), np.zeros(of.shape[0])
    for left in range(start, stop, width):
        right = min(left + width, stop)
        middle, near = mean[left - start : right - start], std[left - start : right - start]
        if right - left < width or not spread_tile(x, places, m, middle, near, tile):
            careful(x, rows, left, right, middle, near, bad)
            put(x, rows, left, right, middle, near, tile)
        add_pairs(tile, sums, x, rows, min(right, max(stop - width, 0)))
        places += width
        if right == stop or (right - start) % (TILES * width) == 0:
            fold(sums, totals)
            for k in range(result.size):
                result[k] += totals[k]
        if right == stop or (right - start + skip) % GRID == 0:
            scatter(result, of, out[(left - start + skip) // GRID])
