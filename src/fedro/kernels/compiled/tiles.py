"""Copy columns of some rows into the cache, prefetch the next ones, and detect NaN and Inf."""

from __future__ import annotations

from typing import Any

from ..compilation import inner, literal
from ..vectors import copy_scaled_row, prefetch


@literal
def product(a: Any, b: Any) -> Any:
    """a·b; "reassoc" could turn Σ 0·v into 0·Σv, where the sum of large values overflows."""
    return a * b


@inner
def copy_scaled(source: Any, scale: Any, target: Any) -> bool:
    """Copy scale · source into target; return whether a value is NaN or Inf (0·v is then NaN)."""
    zero = scale - scale
    probe = zero
    for c in range(target.size):
        v = source[c]
        probe += product(v, zero)
        target[c] = v * scale
    return probe != zero  # type: ignore[no-any-return]


@inner
def fill_tile(x: Any, rows: Any, left: int, right: int, scale: Any, tile: Any, bad: Any) -> None:
    """Copy columns left..right-1 of the rows, each times its scale, into the tile's first rows."""
    width = tile.shape[1]
    for i in range(rows.size):
        if right - left == width:
            bad[i] |= copy_scaled_row(tile, i * width, x, rows[i] * x.shape[1] + left, scale[i])
        else:
            bad[i] |= copy_scaled(x[rows[i], left:right], scale[i], tile[i, : right - left])


@inner
def has_nonfinite(values: Any) -> bool:
    """Whether a value is NaN or Inf."""
    probe = 0.0
    for c in range(values.size):
        probe += product(values[c], 0.0)
    return probe != 0.0


@inner
def prefetch_lines(x: Any, rows: Any, left: int, shift: int, first: int, count: int) -> None:
    """Prefetch lines first..first+count-1 of the tile at `left`, which has 2^shift lines a row."""
    lanes, row, within = 64 // x.itemsize, first >> shift, first & ((1 << shift) - 1)
    if row < rows.size:
        position = rows[row] * x.shape[1] + left + within * lanes
        for _ in range(count):
            prefetch(x, position)
            within += 1
            position += lanes
            if within >> shift:
                row, within = row + 1, 0
                if row == rows.size:
                    return
                position = rows[row] * x.shape[1] + left


@literal
def weighted_pair(u: Any, a: Any, v: Any, b: Any) -> Any:
    """u·a + v·b; the products are computed first, whatever their signs and sizes."""
    return u * a + v * b
