"""The Numba back end: compiled kernels, run on several threads over blocks of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from . import compiled
from .backends import Array, Doubles, Indices, Mask, Primitive, Progress
from .matrix import COPIED_COLUMNS, Matrix, Piece
from .mixing import recipe, unmixed
from .parallel import GRID, ordered, stride
from .sorting_networks import network

R = TypeVar("R")

# `distances` rescales and recomputes a tile's sum of squares that is outside this range.
SAFE_SUMS = {
    "float32": np.array([2.0**-100, 2.0**127], dtype=np.float32),
    "float64": np.array([0.0, np.inf]),
}
# If the largest sum of products is within this range, no other sum lost anything that matters.
EXACT_SUMS = {"float32": (2.0**-80, 2.0**200), "float64": (0.0, np.inf)}


def prepare(primitive: Primitive, dtype: np.dtype[Any]) -> None:
    """Compile the kernel of a primitive for this type, unless that has been done."""
    getattr(compiled, primitive).prepare(dtype)


def distances(
    x: Matrix, rows: Indices, initial: Doubles, progress: Progress
) -> tuple[Doubles, Mask]:
    """Squared distances, added to `initial` block after block."""
    kernel, safe = compiled.distances.prepare(x.work), SAFE_SUMS[x.work.name]

    shape = rows.size, rows.size

    def task(start: int, stop: int) -> tuple[Array, Mask]:
        totals, bad = _block_sums(start, stop, shape), np.zeros(rows.size, dtype=bool)
        for piece, part in x.pieces(rows, start, stop):
            kernel(*piece, part.start - start, safe, totals, bad)
        return totals, bad

    step = stride(x.shape[1], rows.size**2)
    upper, bad = _sum(_run(task, x, step, progress), np.triu(initial, 1))
    total = upper + upper.T
    total[bad] = total[:, bad] = np.inf
    np.fill_diagonal(total, 0.0)
    return total, ~bad


def facts(
    x: Matrix, rows: Indices, reference: Array, initial: Doubles, progress: Progress
) -> tuple[Doubles, Mask]:
    """(m, 3): ‖x_i‖², x_i·r and ‖x_i − r‖², added to `initial`."""
    kernel = compiled.facts.prepare(x.work)

    def task(start: int, stop: int) -> tuple[Array, Mask]:
        totals, bad = _block_sums(start, stop, (rows.size, 3)), np.zeros(rows.size, dtype=bool)
        for piece, part in x.pieces(rows, start, stop):
            kernel(*piece, part.start - start, reference[part], totals, bad)
        return totals, bad

    step = stride(x.shape[1], 3 * rows.size)
    total, bad = _sum(_run(task, x, step, progress), initial)
    return total, ~bad


def combine(x: Matrix, rows: Indices, weights: Doubles, progress: Progress) -> tuple[Any, Mask]:
    """Σ w_i·x_i."""
    out, kernel = x.empty(), compiled.combine.prepare(x.work)
    if not rows.size:
        out[:] = 0
        return out, np.ones(0, dtype=bool)

    def task(start: int, stop: int) -> Mask:
        bad = np.zeros(rows.size, dtype=bool)
        for piece, part in x.pieces(rows, start, stop):
            with x.writing(out, part) as block:
                kernel(*piece, weights, block, bad)
        return bad

    return out, ~_any_bad(_run(task, x, stride(x.shape[1]), progress), rows.size)


def blend(
    x: Matrix,
    rows: Indices,
    weights: Doubles,
    share: float,
    base: Array | None,
    reference: Array | None,
    progress: Progress,
) -> tuple[Any, float, Doubles | None, Mask]:
    """Σ w_i·x_i + share·base, its product with the reference, and the rows' if exact."""
    out, kernel, none = x.empty(), compiled.blend.prepare(x.work), np.empty(0, dtype=x.work)

    def task(start: int, stop: int) -> tuple[Array, Mask]:
        dots, bad = _block_sums(start, stop, (rows.size + 1,)), np.zeros(rows.size + 1, dtype=bool)
        for piece, part in x.pieces(rows, start, stop):
            near, far = (none if v is None else v[part] for v in (base, reference))
            with x.writing(out, part) as block:
                kernel(*piece, part.start - start, weights, share, near, far, block, dots, bad)
        return dots, bad

    step = stride(x.shape[1], rows.size + 1)
    dots, bad = _sum(_run(task, x, step, progress), np.zeros(rows.size + 1))
    return out, float(dots[-1]), dots[:-1] if _in_range(x, dots[:-1]) else None, ~bad[:-1]


def moments(x: Matrix, rows: Indices, progress: Progress) -> tuple[Any, Any, Mask]:
    """Mean and standard deviation (1/n) of each column."""
    mean, std, kernel = x.empty(), x.empty(), compiled.moments.prepare(x.work)

    def task(start: int, stop: int) -> Mask:
        bad = np.zeros(rows.size, dtype=bool)
        for piece, part in x.pieces(rows, start, stop):
            with x.writing(mean, part) as middle, x.writing(std, part) as near:
                kernel(*piece, middle, near, bad)
        return bad

    return mean, std, ~_any_bad(_run(task, x, stride(x.shape[1]), progress), rows.size)


def geometry(x: Matrix, rows: Indices, progress: Progress) -> tuple[Any, Any, Mask, Doubles | None]:
    """Moments, and squared distances between the rows and mean + deviation if exact."""
    mean, std, kernel = x.empty(), x.empty(), compiled.geometry.prepare(x.work)

    shape = rows.size + 1, rows.size + 1

    def task(start: int, stop: int) -> tuple[Array, Mask]:
        totals, bad = _block_sums(start, stop, shape), np.zeros(rows.size + 1, dtype=bool)
        for piece, part in x.pieces(rows, start, stop):
            with x.writing(mean, part) as middle, x.writing(std, part) as near:
                kernel(*piece, part.start - start, middle, near, totals, bad)
        return totals, bad

    step = stride(x.shape[1], shape[0] ** 2)
    upper, bad = _sum(_run(task, x, step, progress), np.zeros(shape))
    return mean, std, ~bad[:-1], upper + upper.T if _in_range(x, upper) else None


def band(
    x: Matrix,
    rows: Indices,
    low: int,
    high: int,
    nearest: int,
    mixing: list[Indices] | Doubles | None,
    scale: Doubles,
    progress: Progress,
) -> tuple[Any, Mask]:
    """Mean of order statistics low..high-1 of the mixed rows, or of the nearest to the median."""
    kernel = compiled.band.prepare(x.work)
    dense = (mixing * scale).astype(x.work) if isinstance(mixing, np.ndarray) else None
    mix = recipe(mixing, rows.size) if isinstance(mixing, list) else unmixed(rows.size)
    scales = (scale * mix.share).astype(x.work)
    if dense is not None:
        scales, mix = np.ones(len(dense), dtype=x.work), unmixed(len(dense))
    n = len(mix.factor) or len(scales)
    steps = network(n, 0, n) if nearest else network(n, low, high)
    ends = (0, nearest, nearest) if nearest else (low, high, 0)
    shift = _shift(mix.height, 1 << 16 if len(mix.factor) else 1 << 17)
    mixture = mix.height, mix.ends, mix.parts, mix.factor.astype(x.work)
    out = x.empty()

    def task(start: int, stop: int) -> Mask:
        bad = np.zeros(rows.size, dtype=bool)
        if dense is None:
            pieces, flags = x.pieces(rows, start, stop), bad
        else:
            pieces, flags = _mixed(x, rows, dense, start, stop, bad), np.zeros(n, dtype=bool)
        for piece, part in pieces:
            with x.writing(out, part) as block:
                kernel(*piece, shift, scales, *mixture, steps, *ends, block, flags)
        return bad

    return out, ~_any_bad(_run(task, x, stride(x.shape[1]), progress), rows.size)


def _shift(rows: int, size: int) -> int:
    """The shift for which a tile with 2^shift cache lines per row takes about `size` bytes."""
    return min(max((size // (64 * rows)).bit_length() - 1, 2), 6)


def _mixed(
    x: Matrix, rows: Indices, dense: Array, start: int, stop: int, bad: Mask
) -> Iterator[tuple[Piece, slice]]:
    """Pieces of dense @ x[rows], for mixing with arbitrary weights."""
    for left in range(start, stop, COPIED_COLUMNS):
        right = min(left + COPIED_COLUMNS, stop)
        part = x.read(rows, left, right)
        bad |= ~np.isfinite(part).all(axis=1)
        with np.errstate(all="ignore"):  # the caller drops rows that are not finite
            mixed = dense @ part
        yield (mixed, np.arange(len(dense)), 0, right - left), slice(left, right)


def _block_sums(start: int, stop: int, shape: tuple[int, ...]) -> Array:
    """Zeros: an array of this shape for each block of GRID columns in start..stop-1."""
    return np.zeros((-(-(stop - start) // GRID), *shape))


def _sum(parts: Iterator[tuple[Array, Mask]], initial: Array) -> tuple[Array, Mask]:
    """Add the sums of all blocks, in the order of the blocks, and join the masks of bad rows."""
    total, bad = initial.copy(), np.zeros(initial.shape[0], dtype=bool)
    with np.errstate(all="ignore"):
        for part, mask in parts:
            for block in part:
                total += block
            bad |= mask
    return total, bad


def _in_range(x: Matrix, sums: Array) -> bool:
    low, high = EXACT_SUMS[x.work.name]
    return bool(low <= np.abs(sums).max() <= high)  # False if one is NaN


def _any_bad(parts: Iterator[Mask], size: int) -> Mask:
    bad = np.zeros(size, dtype=bool)
    for mask in parts:
        bad |= mask
    return bad


def _run(task: Callable[[int, int], R], x: Matrix, step: int, progress: Progress) -> Iterator[R]:
    """Run the task over all columns and report them to `progress`."""
    for index, part in enumerate(ordered(task, x.shape[1], step), 1):
        if progress is not None:
            progress(min(index * step, x.shape[1]), x.shape[1])
        yield part
