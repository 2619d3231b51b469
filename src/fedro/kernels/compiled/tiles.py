"""Bring columns of some rows to the cache, and see whether they hold NaN or Inf."""

from __future__ import annotations

from typing import Any

from ..jit import inner, literal
from ..vectors import prefetch, scale_row


@inner
def load(source: Any, scale: Any, target: Any) -> bool:
    """Copy scale * source into target; return whether a value is NaN or Inf (0·v is then NaN)."""
    zero = scale - scale
    probe = zero
    for c in range(target.size):
        v = source[c]
        probe += v * zero
        target[c] = v * scale
    return probe != zero  # type: ignore[no-any-return]


@inner
def fill(x: Any, rows: Any, left: int, right: int, scale: Any, tile: Any, bad: Any) -> None:
    """Load columns left..right-1 of the rows, each times its scale, into the first rows."""
    width = tile.shape[1]
    for i in range(rows.size):
        if right - left == width:
            bad[i] |= scale_row(tile, i * width, x, rows[i] * x.shape[1] + left, scale[i])
        else:
            bad[i] |= load(x[rows[i], left:right], scale[i], tile[i, : right - left])


@inner
def holds_bad(values: Any) -> bool:
    """Whether a value is NaN or Inf."""
    probe = 0.0
    for c in range(values.size):
        probe += values[c] * 0.0
    return probe != 0.0


@inner
def ahead(x: Any, rows: Any, left: int, shift: int, first: int, count: int) -> None:
    """Have some lines of the tile at `left`, with 2^shift lines a row, brought to the cache."""
    lanes, row, within = 64 // x.itemsize, first >> shift, first & ((1 << shift) - 1)
    if row < rows.size:
        place = rows[row] * x.shape[1] + left + within * lanes
        for _ in range(count):
            prefetch(x, place)
            within += 1
            place += lanes
            if within >> shift:
                row, within = row + 1, 0
                if row == rows.size:
                    return
                place = rows[row] * x.shape[1] + left


@literal
def weighted(u: Any, a: Any, v: Any, b: Any) -> Any:
    """u·a + v·b; the products come first, whatever their signs and sizes."""
    return u * a + v * b
