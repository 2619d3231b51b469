"""The four compiled kernels: columns start..stop-1 of x, a cache-sized tile at a time.

`rows` picks rows of x, `bad` (m,) is set where a picked row holds NaN or Inf. They release the GIL.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import inner, kernel, literal
from .vectors import (
    HALF,
    add_gaps,
    add_rows,
    exchange,
    exchange3,
    fold,
    prefetch,
    scale_row,
    spread_rows,
)

LONG = 8192  # columns a row is read in one go where the rows need not be in the cache together
CHUNK = 1024  # columns whose moments are computed anew, in float64, if that is needed for one
PAIRED = 4  # a row of a tile whose rows are compared has 2^4 lines
TILES = 2  # such tiles whose float sums are added up: 64 squares in each lane of float32
HUGE, TINY = 2.0**-72, 2.0**100  # exact rescalings, see `rescue`


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
def add4(total: Any, a: Any, b: Any, c: Any, d: Any, w: Any) -> None:
    """Add w0·a + w1·b + w2·c + w3·d to total: each product comes first, so ±1e38 never meet."""
    w0, w1, w2, w3 = w[0], w[1], w[2], w[3]
    for k in range(total.size):
        total[k] += (w0 * a[k] + w1 * b[k]) + (w2 * c[k] + w3 * d[k])


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


@literal
def weighted(u: Any, a: Any, v: Any, b: Any) -> Any:
    """u·a + v·b; the products come first, whatever their signs and sizes."""
    return u * a + v * b


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

    Too large: differences shrink by 2⁻⁷², so 256 squares of 2·max fit and lost bits are below
    2⁻⁴⁰ of the sum. Too small: grow by 2¹⁰⁰, so that the least denormal has a normal square.
    """
    one, huge, tiny = a.dtype.type(1.0), a.dtype.type(HUGE), a.dtype.type(TINY)
    if value < safe[0]:
        return np.float64(gap(a, b, one, tiny)) / (TINY * TINY)
    if not value <= safe[1]:
        return np.float64(gap(a, b, huge, one)) / (HUGE * HUGE)
    return np.float64(value)


@inner
def add_pairs(tile: Any, sums: Any, x: Any, rows: Any, upcoming: int, share: int) -> None:
    """Add to sums, eight pairs of rows at a time, while the next tile is fetched."""
    width, k = tile.shape[1], 0
    for i in range(0, rows.size, 2):
        for j in range(i + 1, rows.size, 4):
            ahead(x, rows, upcoming, PAIRED, k * share, share)
            add_gaps(tile, i * width, j * width, sums, k * 8 * (HALF // x.itemsize))
            k += 1


@inner
def slots(m: int) -> Any:
    """The two rows of each sum of `add_pairs`, (k, 2); both -1 where they are no pair."""
    count = 0
    for i in range(0, m, 2):
        count += 8 * ((m - i + 2) // 4)
    found, k = np.full((count, 2), -1), 0
    for i in range(0, m, 2):
        for j in range(i + 1, m, 4):
            for a in range(i, i + 2):
                for b in range(j, j + 4):
                    if a < b < m:
                        found[k, 0], found[k, 1] = a, b
                    k += 1
    return found


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


@kernel("=T[:,:]", "=int64[:]", "int64", "int64", "=T[:]", "float64[:,:]", "bool[:]")
def pairs(x: Any, rows: Any, start: int, stop: int, safe: Any, out: Any, bad: Any) -> None:
    """out[i, j] += ‖x_i − x_j‖² over the columns, i < j; `safe` bounds the float sums of a few."""
    width, of = (64 << PAIRED) // x.itemsize, slots(rows.size)
    limits = np.empty((2, of.shape[0]), dtype=x.dtype)
    for k in range(of.shape[0]):
        limits[0, k] = safe[0] if of[k, 0] >= 0 else -np.inf
        limits[1, k] = safe[1] if of[k, 0] >= 0 else np.inf
    tile, ones = np.zeros((rows.size + 4, width), dtype=x.dtype), np.ones(rows.size, dtype=x.dtype)
    sums = np.zeros(of.shape[0] * (HALF // x.itemsize), dtype=x.dtype)
    totals, result = np.empty(of.shape[0], dtype=x.dtype), np.zeros(of.shape[0])
    share = -(-(rows.size << PAIRED) // max(of.shape[0] // 8, 1))
    for left in range(start, stop, TILES * width):
        right = min(left + TILES * width, stop)
        for first in range(left, right, width):
            last = min(first + width, stop)
            if last - first < width:
                tile[:] = 0.0
            fill(x, rows, first, last, ones, tile, bad)
            add_pairs(tile, sums, x, rows, min(last, max(stop - width, 0)), share)
        fold(sums, totals)
        collect(x, rows, left, right, totals, of, limits, bad, result)
    for k in range(result.size):
        if of[k, 0] >= 0:
            out[of[k, 0], of[k, 1]] += result[k]


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


@kernel("=T[:,:]", "=int64[:]", "int64", "int64", "=T[:]", "float64[:,:]", "bool[:]")
def facts(x: Any, rows: Any, start: int, stop: int, reference: Any, out: Any, bad: Any) -> None:
    """out[i] += (‖x_i‖², x_i·r, ‖x_i − r‖²) over the columns; reference[0] belongs to `start`."""
    fours = rows.size // 4 * 4
    for left in range(start, stop, LONG):
        right = min(left + LONG, stop)
        s, near = slice(left, right), reference[left - start : right - start]
        for i in range(0, fours, 4):
            a, b, c, d = x[rows[i]], x[rows[i + 1]], x[rows[i + 2]], x[rows[i + 3]]
            measure4(a[s], b[s], c[s], d[s], near, out[i : i + 4])
        for i in range(fours, rows.size):
            measure(x[rows[i], left:right], near, out[i])
        for i in range(rows.size):
            if not out[i, 0] < np.inf:
                bad[i] |= holds_bad(x[rows[i], left:right])


@inner
def add_squares4(total: Any, center: Any, a: Any, b: Any, c: Any, d: Any, w: Any) -> None:
    """Add w0·(a − center)² + … + w3·(d − center)² to total."""
    w0, w1, w2, w3 = w[0], w[1], w[2], w[3]
    for k in range(total.size):
        m = center[k]
        p, q, r, s = a[k] - m, b[k] - m, c[k] - m, d[k] - m
        total[k] += (w0 * (p * p) + w1 * (q * q)) + (w2 * (r * r) + w3 * (s * s))


@inner
def spread(x: Any, rows: Any, left: int, right: int, weights: Any, center: Any, out: Any) -> None:
    """out = √(Σ w_i·(x_i − center)²) over the columns left..right-1, in float64."""
    total, s = np.zeros(right - left), slice(left, right)
    for i in range(0, rows.size, 4):
        a, b, c, d = x[rows[i]], x[rows[i + 1]], x[rows[i + 2]], x[rows[i + 3]]
        add_squares4(total, center, a[s], b[s], c[s], d[s], weights[i : i + 4])
    for k in range(total.size):
        out[k] = np.sqrt(total[k])


@inner
def quick_spread(
    x: Any, rows: Any, left: int, right: int, weights: Any, out: Any, around: Any
) -> bool:
    """Mean and deviation of rows of equal weight, in the type of x; whether that was possible."""
    if right - left < CHUNK:
        return False
    m = rows.size
    while weights[m - 1] == 0.0:
        m -= 1
    both, places = np.empty((2, CHUNK), dtype=x.dtype), rows * x.shape[1] + left
    low, high = x.dtype.type(TINY**-0.5), x.dtype.type(TINY**0.5)
    if not spread_rows(x, places, m, low, high, both):
        return False
    out[:], around[:] = both[0], both[1]
    return True


@inner
def weigh(x: Any, rows: Any, left: int, right: int, weights: Any, out: Any, bad: Any) -> Any:
    """out = Σ w_i·x_i over the columns left..right-1; the same in float64 is returned."""
    total, s = np.zeros(right - left), slice(left, right)
    for i in range(0, rows.size, 4):
        a, b, c, d = x[rows[i]], x[rows[i + 1]], x[rows[i + 2]], x[rows[i + 3]]
        add4(total, a[s], b[s], c[s], d[s], weights[i : i + 4])
    if holds_bad(total):
        for i in range(rows.size):
            bad[i] |= holds_bad(x[rows[i], left:right])
    load(total, 1.0, out)
    return total


@kernel("=T[:,:]", "=int64[:]", "int64", "int64", "=float64[:]", "T[:]", "T[:]", "bool[:]")
def combine(
    x: Any, rows: Any, start: int, stop: int, weights: Any, out: Any, around: Any, bad: Any
) -> None:
    """out = Σ w_i·x_i in float64; the number of rows is a multiple of four (weight 0 pads).

    around = √(Σ w_i·(x_i − out)²), unless it is empty; the rows then have equal weights.
    """
    width = CHUNK if around.size else LONG
    for left in range(start, stop, width):
        right = min(left + width, stop)
        part, near = out[left - start : right - start], around[left - start : right - start]
        if around.size and quick_spread(x, rows, left, right, weights, part, near):
            continue
        center = weigh(x, rows, left, right, weights, part, bad)
        if around.size:
            spread(x, rows, left, right, weights, center, near)


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
