"""Means of order statistics: rows are mixed, then sorted column by column in a tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import inner, kernel
from ..vectors import add_rows, exchange, exchange3
from .tiles import ahead, fill, weighted


@inner
def order(tile: Any, steps: Any, x: Any, rows: Any, upcoming: int, shift: int) -> None:
    """Run a sorting network on rows, column by column, while the next tile is fetched."""
    share = -(-(rows.size << shift) // max(steps.shape[0], 1))
    for k in range(steps.shape[0]):
        ahead(x, rows, upcoming, shift, k * share, share)
        a, b, c, d = steps[k, 0], steps[k, 1], steps[k, 2], steps[k, 3]
        if c < 0:
            exchange(tile, a, b)
        else:
            exchange3(tile, a, b, c, d)


@inner
def nearer(center: Any, low: Any, high: Any) -> None:
    """Put into low what lies nearer to the center, with low <= high; low wins a tie."""
    for c in range(low.size):
        a, b = low[c], high[c]
        low[c] = b if center[c] - a > b - center[c] else a


@inner
def mix(tile: Any, m: int, ends: Any, places: Any, factor: Any) -> None:
    """Add up rows and sums of rows, after the m rows; then the last rows times their factors."""
    width, first = tile.shape[1], tile.shape[0] - factor.size
    for k in range(ends.size - 1):
        add_rows(tile, (m + k) * width, places, ends[k], ends[k + 1])
    for i in range(factor.size):
        if factor[i] != 1.0:
            for c in range(width):
                tile[first + i, c] *= factor[i]


@inner
def nearest(tile: Any, n: int, count: int, center: Any) -> None:
    """Leave in rows 0..count-1 the values nearest to the median of n sorted rows.

    They are `count` neighbors in sorted order, so exactly one of each residue class modulo
    `count`, and it is the nearest of its class.
    """
    half = tile.dtype.type(0.5)
    for c in range(center.size):
        center[c] = weighted(half, tile[(n - 1) // 2, c], half, tile[n // 2, c])
    for k in range(count, n):
        nearer(center, tile[k % count], tile[k])


@inner
def average(tile: Any, low: int, high: int, total: Any, out: Any) -> None:
    """out = mean of rows low..high-1, in float64, each divided before it is added."""
    share, last = 1.0 / (high - low), high - 1
    for k in range(low, high, 4):
        a, b, c, d = tile[k], tile[min(k + 1, last)], tile[min(k + 2, last)], tile[min(k + 3, last)]
        v, w, z = share * (k + 1 < high), share * (k + 2 < high), share * (k + 3 < high)
        if k == low:
            for i in range(out.size):
                total[i] = (share * a[i] + v * b[i]) + (w * c[i] + z * d[i])
        else:
            for i in range(out.size):
                total[i] += (share * a[i] + v * b[i]) + (w * c[i] + z * d[i])
    for i in range(out.size):
        out[i] = total[i]


@inner
def places(steps: Any, first: int, width: int) -> Any:
    """A network's wires as places in a tile where wire 0 is row `first`; -1 stays."""
    found = np.full(steps.shape, -1)
    for k in range(steps.shape[0]):
        for wire in range(4):
            if steps[k, wire] >= 0:
                found[k, wire] = (first + steps[k, wire]) * width
    return found


@kernel(
    *("=T[:,:]", "=int64[:]", "int64", "int64", "int64", "=T[:]", "int64", "=int64[:]"),
    *("=int64[:]", "=T[:]", "=int64[:,:]", "int64", "int64", "int64", "T[:]", "bool[:]"),
)
def band(
    x: Any,
    rows: Any,
    start: int,
    stop: int,
    shift: int,
    scale: Any,
    height: int,
    ends: Any,
    parts: Any,
    factor: Any,
    steps: Any,
    low: int,
    high: int,
    near: int,
    out: Any,
    bad: Any,
) -> None:
    """out = mean of the order statistics low..high-1 of the scaled, mixed rows, per column.

    `height` to `factor` are a recipe for mixing. With `near` > 0, rows 0..near-1 hold the values
    nearest to the median instead.
    """
    n = factor.size or rows.size
    width = (64 << shift) // x.itemsize
    whole = np.zeros((height, width), dtype=x.dtype)
    tile, parts, wires = whole[height - n :], parts * width, places(steps, height - n, width)
    center, total = np.empty(width, dtype=x.dtype), np.empty(width)
    for left in range(start, stop, width):
        right = min(left + width, stop)
        fill(x, rows, left, right, scale, whole, bad)
        mix(whole, rows.size, ends, parts, factor)
        order(whole, wires, x, rows, min(right, max(stop - width, 0)), shift)
        if near:
            nearest(tile, n, near, center)
        average(tile, low, high, total, out[left - start : right - start])
