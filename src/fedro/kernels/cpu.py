"""The primitives on the CPU: compiled kernels over the absolute grid of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import compiled, noise
from .matrix import COPY, Matrix, Piece
from .mixing import recipe, unmixed
from .networks import network
from .parallel import GRID, ordered, stride
from .types import Array, Mask, Progress, Rows

R = TypeVar("R")

# A tile's float32 sum of squares below or above this is computed again, rescaled.
SAFE = {
    "float32": np.array([2.0**-100, 2.0**127], dtype=np.float32),
    "float64": np.array([0.0, np.inf]),
}
# Where the largest sum of products is between these, no other lost what would count beside it.
TRUSTED = {"float32": (2.0**-80, 2.0**200), "float64": (0.0, np.inf)}


def distances(
    x: Matrix, rows: Rows, initial: Array, progress: Progress
) -> tuple[NDArray[np.float64], Mask]:
    """Squared distances added to `initial`, block after block."""
    kernel, safe = compiled.pairs.prepare(x.work), SAFE[x.work.name]

    shape = rows.size, rows.size

    def task(start: int, stop: int) -> tuple[Array, Mask]:
        totals, bad = _room(start, stop, shape), np.zeros(rows.size, dtype=bool)
        for piece, part in x.pieces(rows, start, stop):
            kernel(*piece, part.start - start, safe, totals, bad)
        return totals, bad

    step = stride(x.shape[1], rows.size**2)
    upper, bad = _sum(_watched(task, x, step, progress), np.triu(initial, 1))
    total = upper + upper.T
    total[bad] = total[:, bad] = np.inf
    np.fill_diagonal(total, 0.0)
    return total, ~bad


def facts(
    x: Matrix, rows: Rows, reference: Array, initial: Array, progress: Progress
) -> tuple[NDArray[np.float64], Mask]:
    """(m, 3): ‖x_i‖², x_i·r and ‖x_i − r‖², added to `initial`."""
    kernel = compiled.facts.prepare(x.work)

    def task(start: int, stop: int) -> tuple[Array, Mask]:
        totals, bad = _room(start, stop, (rows.size, 3)), np.zeros(rows.size, dtype=bool)
        for piece, part in x.pieces(rows, start, stop):
            kernel(*piece, part.start - start, reference[part], totals, bad)
        return totals, bad

    step = stride(x.shape[1], 3 * rows.size)
    total, bad = _sum(_watched(task, x, step, progress), initial)
    return total, ~bad


def combine(
    x: Matrix, rows: Rows, weights: NDArray[np.float64], progress: Progress
) -> tuple[Any, Mask]:
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

    return out, ~_any(_watched(task, x, stride(x.shape[1]), progress), rows.size)


def blend(
    x: Matrix,
    rows: Rows,
    weights: NDArray[np.float64],
    share: float,
    base: Array | None,
    reference: Array | None,
    progress: Progress,
) -> tuple[Any, float, NDArray[np.float64] | None, Mask]:
    """Σ w_i·x_i + share·base, its product with the reference, and the rows' if in range."""
    out, kernel, none = x.empty(), compiled.blend.prepare(x.work), np.empty(0, dtype=x.work)

    def task(start: int, stop: int) -> tuple[Array, Mask]:
        dots, bad = _room(start, stop, (rows.size + 1,)), np.zeros(rows.size + 1, dtype=bool)
        for piece, part in x.pieces(rows, start, stop):
            near, far = (none if v is None else v[part] for v in (base, reference))
            with x.writing(out, part) as block:
                kernel(*piece, part.start - start, weights, share, near, far, block, dots, bad)
        return dots, bad

    step = stride(x.shape[1], rows.size + 1)
    dots, bad = _sum(_watched(task, x, step, progress), np.zeros(rows.size + 1))
    return out, float(dots[-1]), dots[:-1] if _trusted(x, dots[:-1]) else None, ~bad[:-1]


def moments(x: Matrix, rows: Rows, progress: Progress) -> tuple[Any, Any, Mask]:
    """Mean and standard deviation (1/n) of each column."""
    mean, std, kernel = x.empty(), x.empty(), compiled.moments.prepare(x.work)

    def task(start: int, stop: int) -> Mask:
        bad = np.zeros(rows.size, dtype=bool)
        for piece, part in x.pieces(rows, start, stop):
            with x.writing(mean, part) as middle, x.writing(std, part) as near:
                kernel(*piece, middle, near, bad)
        return bad

    return mean, std, ~_any(_watched(task, x, stride(x.shape[1]), progress), rows.size)


def geometry(
    x: Matrix, rows: Rows, progress: Progress
) -> tuple[Any, Any, Mask, NDArray[np.float64] | None]:
    """Moments, and squared distances between the rows and mean + deviation, unless out of range."""
    mean, std, kernel = x.empty(), x.empty(), compiled.geometry.prepare(x.work)

    shape = rows.size + 1, rows.size + 1

    def task(start: int, stop: int) -> tuple[Array, Mask]:
        totals, bad = _room(start, stop, shape), np.zeros(rows.size + 1, dtype=bool)
        for piece, part in x.pieces(rows, start, stop):
            with x.writing(mean, part) as middle, x.writing(std, part) as near:
                kernel(*piece, part.start - start, middle, near, totals, bad)
        return totals, bad

    step = stride(x.shape[1], shape[0] ** 2)
    upper, bad = _sum(_watched(task, x, step, progress), np.zeros(shape))
    return mean, std, ~bad[:-1], upper + upper.T if _trusted(x, upper) else None


def band(
    x: Matrix,
    rows: Rows,
    low: int,
    high: int,
    nearest: int,
    mixing: list[Rows] | Array | None,
    scale: NDArray[np.float64],
    progress: Progress,
) -> tuple[Any, Mask]:
    """Mean of order statistics low..high-1 of the mixed rows, or of the nearest to the median."""
    kernel = compiled.band.prepare(x.work)
    dense = (mixing * scale).astype(x.work) if isinstance(mixing, np.ndarray) else None
    how = recipe(mixing, rows.size) if isinstance(mixing, list) else unmixed(rows.size)
    scales = (scale * how.share).astype(x.work)
    if dense is not None:
        scales, how = np.ones(len(dense), dtype=x.work), unmixed(len(dense))
    n = len(how.factor) or len(scales)
    steps = network(n, 0, n) if nearest else network(n, low, high)
    ends = (0, nearest, nearest) if nearest else (low, high, 0)
    shift = _shift(how.height, 1 << 16 if len(how.factor) else 1 << 17)
    mixture = how.height, how.ends, how.places, how.factor.astype(x.work)
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

    return out, ~_any(_watched(task, x, stride(x.shape[1]), progress), rows.size)


def normal(x: Matrix, rows: Rows, rng: np.random.Generator, mean: float, std: float) -> None:
    """Fill rows with normal numbers; every block of the grid has a seed in each row."""
    kernel = noise.normal.prepare(x.work)
    seeds = rng.integers(2**64, size=(rows.size, -(-x.shape[1] // GRID)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        shape = np.float32(mean), np.float32(std)

    def task(start: int, stop: int) -> None:
        for row, own in zip(rows, seeds, strict=True):
            with x.writing(x.source[row], slice(start, stop)) as block:
                kernel(own[start // GRID :], GRID, *shape, block)

    for _ in ordered(task, x.shape[1], stride(x.shape[1])):
        pass


def _shift(rows: int, size: int) -> int:
    """How many cache lines, 2^shift, a row of a tile has, for the tile to be about `size` bytes."""
    return min(max((size // (64 * rows)).bit_length() - 1, 2), 6)


def _mixed(
    x: Matrix, rows: Rows, dense: Array, start: int, stop: int, bad: Mask
) -> Iterator[tuple[Piece, slice]]:
    """Pieces of dense @ x[rows], for mixing that is not plain averages of rows."""
    for left in range(start, stop, COPY):
        right = min(left + COPY, stop)
        part = x.read(rows, left, right)
        bad |= ~np.isfinite(part).all(axis=1)
        with np.errstate(all="ignore"):  # rows that are not finite are dropped by the caller
            mixed = dense @ part
        yield (mixed, np.arange(len(dense)), 0, right - left), slice(left, right)


def _room(start: int, stop: int, shape: tuple[int, ...]) -> Array:
    """Zeros for each block of the grid in the columns start..stop-1."""
    return np.zeros((-(-(stop - start) // GRID), *shape))


def _sum(parts: Iterator[tuple[Array, Mask]], initial: Array) -> tuple[Array, Mask]:
    """Add the parts, each a list of blocks, in order; the order is what makes the bits."""
    total, bad = initial.copy(), np.zeros(initial.shape[0], dtype=bool)
    with np.errstate(all="ignore"):
        for part, mask in parts:
            for block in part:
                total += block
            bad |= mask
    return total, bad


def _trusted(x: Matrix, sums: Array) -> bool:
    low, high = TRUSTED[x.work.name]
    return bool(low <= np.abs(sums).max() <= high)  # not so if one is NaN


def _any(parts: Iterator[Mask], size: int) -> Mask:
    bad = np.zeros(size, dtype=bool)
    for mask in parts:
        bad |= mask
    return bad


def _watched(
    task: Callable[[int, int], R], x: Matrix, step: int, progress: Progress
) -> Iterator[R]:
    """Run the task over all columns and tell `progress` how many are done."""
    for index, part in enumerate(ordered(task, x.shape[1], step), 1):
        if progress is not None:
            progress(min(index * step, x.shape[1]), x.shape[1])
        yield part
