"""Means of order statistics: mix the rows of a tile, then sort its columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compilation import inner, kernel
from ..vectors import add_rows, compare_exchange, compare_exchange3
from .tiles import fill_tile, prefetch_lines, weighted_pair


@inner
def sort_columns(tile: Any, steps: Any, x: Any, rows: Any, next_tile: int, shift: int) -> None:
    """Run a sorting network on the columns of a tile while the next tile is prefetched."""
    share = -(-(rows.size << shift) // max(steps.shape[0], 1))
    for k in range(steps.shape[0]):
        prefetch_lines(x, rows, next_tile, shift, k * share, share)
        a, b, c, d = steps[k, 0], steps[k, 1], steps[k, 2], steps[k, 3]
        if c < 0:
            compare_exchange(tile, a, b)
        else:
            compare_exchange3(tile, a, b, c, d)


@inner
def keep_nearer(center: Any, low: Any, high: Any) -> None:
    """Keep in low what lies nearer to the center, where low <= high; low wins a tie."""
    for c in range(low.size):
        a, b = low[c], high[c]
        low[c] = b if center[c] - a > b - center[c] else a


@inner
def mix_rows(tile: Any, m: int, ends: Any, parts: Any, factor: Any) -> None:
    """Append sums of rows, and of such sums, to the m rows; multiply the last by `factor`."""
    width, first = tile.shape[1], tile.shape[0] - factor.size
    for k in range(ends.size - 1):
        add_rows(tile, (m + k) * width, parts, ends[k], ends[k + 1])
    for i in range(factor.size):
        if factor[i] != 1.0:
            for c in range(width):
                tile[first + i, c] *= factor[i]


@inner
def keep_nearest(tile: Any, n: int, count: int, center: Any) -> None:
    """Leave in rows 0..count-1 the values nearest to the median of n sorted rows.

    These are `count` neighbors in sorted order, so one of each residue class of ranks modulo
    `count`: the nearest of its class.
    """
    half = tile.dtype.type(0.5)
    for c in range(center.size):
        center[c] = weighted_pair(half, tile[(n - 1) // 2, c], half, tile[n // 2, c])
    for k in range(count, n):
        keep_nearer(center, tile[k % count], tile[k])


@inner
def average(tile: Any, low: int, high: int, total: Any, out: Any) -> None:
    """out = mean of rows low..high-1, in float64; each is divided before it is added."""
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
def wire_positions(steps: Any, first: int, width: int) -> Any:
    """Positions of a network's wires in a tile whose row `first` is wire 0; -1 stays -1."""
    wires = np.full(steps.shape, -1)
    for k in range(steps.shape[0]):
        for wire in range(4):
            if steps[k, wire] >= 0:
                wires[k, wire] = (first + steps[k, wire]) * width
    return wires


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

    `height`, `ends`, `parts` and `factor` are a mixing recipe. With `near` > 0 the mean is that of
    the `near` values nearest to the median; then low = 0 and high = near.
    """
    n = factor.size or rows.size
    width = (64 << shift) // x.itemsize
    whole = np.zeros((height, width), dtype=x.dtype)
    tile, parts, wires = (
        whole[height - n :],
        parts * width,
        wire_positions(steps, height - n, width),
    )
    center, total = np.empty(width, dtype=x.dtype), np.empty(width)
    for left in range(start, stop, width):
        right = min(left + width, stop)
        fill_tile(x, rows, left, right, scale, whole, bad)
        mix_rows(whole, rows.size, ends, parts, factor)
        sort_columns(whole, wires, x, rows, min(right, max(stop - width, 0)), shift)
        if near:
            keep_nearest(tile, n, near, center)
        average(tile, low, high, total, out[left - start : right - start])
