"""Eight primitives on a matrix of updates (n, d), each one pass over the data.

    value, finite = distances(updates)                  # (n, n) squared distances, float64
    norms = facts(updates, reference).squared           # also dots, gaps, finite
    value, finite = combine(updates, weights)           # (d,) weighted sum of rows
    value, dots, own, finite = blend(updates, weights, reference)  # and x_i·r, value·r
    mean, std, finite = moments(updates)                # (d,) each, of the columns
    mean, std, sq, finite = geometry(updates)           # also (n+1, n+1) squared distances
    value, finite = band(updates, b, n - b)             # (d,) trimmed mean
    sample = columns(updates, index)                    # (n, k), float64

and `normal`, which fills rows with random numbers.

Large inputs on the CPU run compiled kernels, all else runs torch operations; `updates` is never
copied whole, and only `normal` modifies it. A pass is optimistic: it tells which rows hold NaN or
Inf, and the caller drops them (`rows=`) and repeats.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .matrix import Matrix, matrix
from .parallel import GRID, threads
from .types import Blend, Facts, Geometry, Moments, Pass, Progress, Rows

__all__ = [
    "GRID",
    "Blend",
    "Facts",
    "Geometry",
    "Moments",
    "Pass",
    "Progress",
    "band",
    "blend",
    "columns",
    "combine",
    "distances",
    "empty_like",
    "facts",
    "geometry",
    "matrix",
    "moments",
    "normal",
    "picked",
    "threads",
]

Backend = Literal["auto", "cpu", "generic"]
SMALL = 1 << 17  # numbers in a matrix that is not worth waiting for a compiler


def distances(
    updates: Any,
    *,
    rows: ArrayLike | None = None,
    initial: NDArray[np.float64] | None = None,
    progress: Progress = None,
    backend: Backend = "auto",
) -> Pass:
    """Squared distances ‖x_i − x_j‖² (m, m) between the picked rows, from differences.

    A row that is not finite is at distance Inf from all others. Shards: pass the value of the
    columns before as `initial`, and cut at multiples of GRID to get the bits of the whole.
    """
    x = matrix(updates)
    picked = _rows(x, rows)
    start = np.zeros((picked.size, picked.size)) if initial is None else initial
    return Pass(*_backend(x, backend).distances(x, picked, start, progress))


def facts(
    updates: Any,
    reference: Any = None,
    *,
    rows: ArrayLike | None = None,
    initial: Facts | None = None,
    progress: Progress = None,
    backend: Backend = "auto",
) -> Facts:
    """‖x_i‖², x_i·r and ‖x_i − r‖² of the picked rows, in float64; r = 0 without a reference."""
    x = matrix(updates)
    picked, r = _rows(x, rows), _reference(x, reference)
    start = np.zeros((picked.size, 3)) if initial is None else np.stack(initial[:3], 1)
    total, finite = _backend(x, backend).facts(x, picked, r, start, progress)
    return Facts(total[:, 0], total[:, 1], total[:, 2], finite)


def combine(
    updates: Any,
    weights: ArrayLike,
    *,
    rows: ArrayLike | None = None,
    progress: Progress = None,
    backend: Backend = "auto",
) -> Pass:
    """Σ w_i·x_i (d,) over the picked rows; a row of weight zero is never looked at."""
    x = matrix(updates)
    picked = _rows(x, rows)
    w = _weights(weights, picked.size)
    used, finite = w != 0, np.ones(picked.size, dtype=bool)
    arguments = (picked[used], np.ascontiguousarray(w[used]), progress)
    value, finite[used] = _backend(x, backend).combine(x, *arguments)
    return Pass(value, finite)


def blend(
    updates: Any,
    weights: ArrayLike,
    reference: Any = None,
    *,
    plus: tuple[float, Any] | None = None,
    rows: ArrayLike | None = None,
    progress: Progress = None,
    backend: Backend = "auto",
) -> Blend:
    """Σ w_i·x_i (d,) over the picked rows and, in the same pass, x_i·r (m,) and its own product.

    With plus=(w, v), w·v is added to the sum. Without a reference r is the sum itself. The error of
    a product is small beside the largest of them; all are NaN if a row is not finite.
    """
    x = matrix(updates)
    picked = _rows(x, rows)
    w = _weights(weights, picked.size)
    r = None if reference is None else _reference(x, reference)
    share, base = (0.0, None) if plus is None else (float(plus[0]), _reference(x, plus[1]))
    used = _backend(x, backend)
    value, own, dots, finite = used.blend(x, picked, w, share, base, r, progress)
    if not finite.all():
        return Blend(value, np.full(picked.size, np.nan), math.nan, finite)
    if dots is None:
        r = _reference(x, value) if r is None else r
        dots = used.facts(x, picked, r, np.zeros((picked.size, 3)), progress)[0][:, 1]
    return Blend(value, dots, own, finite)


def moments(
    updates: Any,
    *,
    rows: ArrayLike | None = None,
    progress: Progress = None,
    backend: Backend = "auto",
) -> Moments:
    """Mean x̄ (d,) and standard deviation √(1/n Σ(x_i − x̄)²) (d,) of the picked rows.

    Computed from differences: the deviation to a few units in its last place, the mean to one in
    that of the largest number. Where a row is not finite, neither are these.
    """
    x = matrix(updates)
    return Moments(*_backend(x, backend).moments(x, _rows(x, rows), progress))


def geometry(
    updates: Any,
    *,
    rows: ArrayLike | None = None,
    progress: Progress = None,
    backend: Backend = "auto",
) -> Geometry:
    """The moments and the squared distances between the picked rows and mean + std, (m+1, m+1).

    One pass where the numbers allow it. The error of a distance is small beside the largest of
    them; all are NaN if a row is not finite.
    """
    x = matrix(updates)
    picked, used = _rows(x, rows), _backend(x, backend)
    mean, std, finite, sq = used.geometry(x, picked, progress)
    m = picked.size
    if not finite.all():
        return Geometry(mean, std, np.full((m + 1, m + 1), np.nan), finite)
    if sq is None:
        sq = np.zeros((m + 1, m + 1))
        sq[:m, :m], _ = used.distances(x, picked, sq[:m, :m], progress)
        with np.errstate(all="ignore"):  # where it is too large, so are the distances
            further = _reference(x, mean + std)
        found, _ = used.facts(x, picked, further, np.zeros((m, 3)), progress)
        sq[m, :m] = sq[:m, m] = found[:, 2]
    return Geometry(mean, std, sq, finite)


def band(
    updates: Any,
    low: int = 0,
    high: int | None = None,
    *,
    nearest: int | None = None,
    mixing: Sequence[ArrayLike] | NDArray[Any] | None = None,
    scale: ArrayLike | None = None,
    rows: ArrayLike | None = None,
    progress: Progress = None,
    backend: Backend = "auto",
) -> Pass:
    """Per column, the mean of the order statistics low..high-1, (d,).

    Before that the picked rows are multiplied by `scale` (m,), then row i becomes the mean of the
    rows (positions in the picked ones) in mixing[i]; or, for a matrix of floats (n, m), which is
    slower, the combination of rows with the weights mixing[i]. With `nearest`, the mean of that
    many values nearest to the median instead; of two equally near the lower one counts.
    """
    x = matrix(updates)
    picked = _rows(x, rows)
    factors = np.ones(picked.size) if scale is None else np.asarray(scale, dtype=np.float64)
    if factors.shape != picked.shape:
        raise ValueError(
            f"scale has shape {factors.shape}: need one for each of {picked.size} rows"
        )
    mixed = _mixing(mixing, picked.size)
    n = picked.size if mixed is None else len(mixed)
    ends = _band(n, low, n if high is None else high, nearest)
    value, finite = _backend(x, backend).band(x, picked, *ends, mixed, factors, progress)
    return Pass(value, finite)


def columns(
    updates: Any, index: ArrayLike, *, rows: ArrayLike | None = None
) -> NDArray[np.float64]:
    """The picked rows at some columns, (m, k) in float64."""
    x = matrix(updates)
    picked, chosen = _rows(x, rows), _index(index, x.shape[1])
    if not x.is_torch:
        return x.source[np.ix_(picked, chosen)].astype(np.float64)  # type: ignore[no-any-return]
    torch = sys.modules["torch"]
    row, column = (torch.from_numpy(part).to(x.source.device) for part in (picked, chosen))
    part = x.source[row[:, None], column]
    return part.to(torch.float64).cpu().numpy()  # type: ignore[no-any-return]


def normal(
    out: Any,
    rng: np.random.Generator,
    mean: float = 0.0,
    std: float = 1.0,
    *,
    rows: ArrayLike | None = None,
    backend: Backend = "auto",
) -> None:
    """Fill the picked rows of `out` (n, d) with numbers from N(mean, std²).

    The same numbers for any number of threads; other ones from each back end.
    """
    x = matrix(out)
    _backend(x, backend).normal(x, _rows(x, rows), rng, mean, std)


def empty_like(vector: Any) -> Any:
    """Room for another tensor (d,) of the kind, on memory that is used again."""
    if vector.device.type != "cpu":
        return vector.new_empty(vector.shape)
    return matrix(vector[None, :]).empty()


def picked(updates: Any, rows: ArrayLike | None = None) -> Rows:
    """The numbers of the picked rows: all without `rows`, those where it is true for a mask."""
    return _rows(matrix(updates), rows)


def _backend(x: Matrix, name: Backend) -> ModuleType:
    """The compiled kernels for a large matrix in main memory, torch operations for all else.

    The choice depends on the input alone, so equal inputs give equal bits.
    """
    if name not in ("auto", "cpu", "generic"):
        raise ValueError(f"backend {name!r}: need 'auto', 'cpu' or 'generic'")
    small = x.shape[0] * x.shape[1] < SMALL
    if x.on_cpu and (name == "cpu" or (name == "auto" and not small)):
        from . import cpu

        return cpu
    from . import generic

    return generic


def _rows(x: Matrix, rows: ArrayLike | None) -> Rows:
    """Row numbers; a mask picks the rows where it is true."""
    if rows is None:
        return np.arange(x.shape[0])
    array = np.asarray(rows)
    if array.dtype == bool and array.shape != (x.shape[0],):
        raise ValueError(f"rows is a mask of shape {array.shape}: need ({x.shape[0]},)")
    picked = _index(np.flatnonzero(array) if array.dtype == bool else array, x.shape[0])
    if not picked.size:
        raise ValueError("rows picks no row: need at least one")
    return picked


def _weights(weights: ArrayLike, count: int) -> NDArray[np.float64]:
    """One weight for each row, checked."""
    array = np.ascontiguousarray(weights, dtype=np.float64)
    if array.shape != (count,):
        raise ValueError(f"weights have shape {array.shape}: need one for each of {count} rows")
    return array


def _index(values: ArrayLike, size: int) -> Rows:
    """Check numbers that kernels use as indices without a further look."""
    array = np.asarray(values)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise ValueError(f"need a non-empty list of integers, not {values!r}")
    if array.min() < 0 or array.max() >= size:
        raise ValueError(f"index {array.min()}..{array.max()} is outside 0..{size - 1}")
    return np.array(array, dtype=np.int64)  # a copy: of one number reversed, the stride is negative


def _mixing(mixing: Any, rows: int) -> list[Rows] | NDArray[np.float64] | None:
    """Neighbor lists, or a dense matrix of weights, checked."""
    if mixing is None:
        return None
    if isinstance(mixing, np.ndarray) and mixing.dtype.kind == "f":
        if mixing.ndim != 2 or mixing.shape[1] != rows or not len(mixing):
            raise ValueError(f"mixing has shape {mixing.shape}: need (n, {rows})")
        return mixing.astype(np.float64)
    lists = [np.asarray(part) for part in mixing]
    if not lists or any(part.ndim != 1 or not part.size for part in lists):
        raise ValueError("mixing needs non-empty lists of row numbers")
    sizes = [part.size for part in lists]
    places = _index(np.concatenate(lists), rows)
    named = np.zeros((len(lists), rows), dtype=bool)
    named[np.repeat(np.arange(len(lists)), sizes), places] = True
    if named.sum() < places.size:
        raise ValueError("mixing names a row twice in a list: need different rows")
    return np.split(places, np.cumsum(sizes)[:-1])


def _reference(x: Matrix, reference: Any) -> NDArray[Any]:
    """The reference vector in the working type; zeros take no memory."""
    if reference is None:
        return np.zeros(x.shape[1], dtype=x.work)
    if hasattr(reference, "detach"):
        reference = reference.detach().cpu()
        reference = (reference if reference.dtype.itemsize > 2 else reference.float()).numpy()
    vector = np.ascontiguousarray(reference, dtype=x.work)
    if vector.shape != (x.shape[1],):
        raise ValueError(f"reference has shape {vector.shape}: need ({x.shape[1]},)")
    return vector


def _band(n: int, low: int, high: int, nearest: int | None) -> tuple[int, int, int]:
    """(low, high, nearest or 0), checked."""
    low, high = operator.index(low), operator.index(high)
    if not 0 <= low < high <= n:
        raise ValueError(f"band {low}..{high} of {n} rows: need 0 <= low < high <= {n}")
    if nearest is not None and not 1 <= operator.index(nearest) <= n:
        raise ValueError(f"nearest={nearest} of {n} rows: need 1 <= nearest <= {n}")
    return low, high, operator.index(nearest or 0)
