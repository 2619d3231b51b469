"""Norms of rows, their products with a reference and their distances to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import inner, kernel
from ..parallel import GRID
from .tiles import holds_bad

LONG = 8192  # columns that are read in one go


@inner
def measure(row: Any, reference: Any, out: Any) -> None:
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
def measure4(a: Any, b: Any, c: Any, d: Any, reference: Any, out: Any) -> None:
    """The same for four rows, faster: one alone waits for its sums, not for the memory."""
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
    put4(out, 0, s0, s1, s2, s3)
    put4(out, 1, p0, p1, p2, p3)
    put4(out, 2, g0, g1, g2, g3)


@inner
def put4(out: Any, column: int, a: float, b: float, c: float, d: float) -> None:
    """Add four numbers to a column of four rows."""
    out[0, column] += a
    out[1, column] += b
    out[2, column] += c
    out[3, column] += d


@kernel("=T[:,:]", "=int64[:]", "int64", "int64", "int64", "=T[:]", "float64[:,:,:]", "bool[:]")
def facts(
    x: Any, rows: Any, start: int, stop: int, skip: int, reference: Any, out: Any, bad: Any
) -> None:
    """out[block, i] += (‖x_i‖², x_i·r, ‖x_i − r‖²) over its columns; reference[0] is at `start`.

    A block is GRID columns; the first one begins `skip` columns before the start.
    """
    fours = rows.size // 4 * 4
    for left in range(start, stop, LONG):
        right, found = min(left + LONG, stop), out[(left - start + skip) // GRID]
        s, near = slice(left, right), reference[left - start : right - start]
        for i in range(0, fours, 4):
            a, b, c, d = x[rows[i]], x[rows[i + 1]], x[rows[i + 2]], x[rows[i + 3]]
            measure4(a[s], b[s], c[s], d[s], near, found[i : i + 4])
        for i in range(fours, rows.size):
            measure(x[rows[i], left:right], near, found[i])
        for i in range(rows.size):
            if not found[i, 0] < np.inf:
                bad[i] |= holds_bad(x[rows[i], left:right])
