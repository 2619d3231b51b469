"""Eight primitives on a matrix of updates (n, d), each one pass over the data.

    value, finite = distances(updates)                  # (n, n) squared distances, float64
    norms = facts(updates, reference).squared           # also dots, gaps, finite
    value, finite = combine(updates, weights)           # (d,) weighted sum of rows
    value, dots, own, finite = blend(updates, weights, reference)  # and x_i·r, value·r
    mean, std, finite = moments(updates)                # (d,) each, of the columns
    mean, std, sq, finite = geometry(updates)           # also (n+1, n+1) squared distances
    value, finite = band(updates, b, n - b)             # (d,) trimmed mean
    sample = columns(updates, index)                    # (n, k), float64

All primitives take these arguments:

- `updates` (n, d): a torch tensor or NumPy array of floats, with any strides, on any device. It is
  never modified and never copied as a whole.
- `rows`: the m rows to use, as numbers or as a mask; all by default. ("Picked rows" below.)
- `progress`: a function that is called with (columns finished, columns in all).
- `backend`: "numba" or "torch"; "auto" runs compiled kernels for large inputs on the CPU and torch
  operations for everything else.

A primitive does not look for NaN and Inf first. Its result says which of the picked rows are
finite, and the caller drops the others and repeats the call. Wrong arguments raise a ValueError
or TypeError.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import backends
from .arguments import (
    band_limits,
    indices,
    mixing_lists_or_weights,
    picked_rows,
    reference_vector,
    row_numbers,
)
from .backends import (
    Backend,
    BackendName,
    Blend,
    Facts,
    Geometry,
    Indices,
    Moments,
    Pass,
    Primitive,
    Progress,
)
from .matrix import Matrix, matrix
from .parallel import GRID, threads

__all__ = [
    "GRID",
    "Backend",
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
    "facts",
    "geometry",
    "matrix",
    "moments",
    "picked",
    "threads",
]

MIN_COMPILED_SIZE = 1 << 17  # numbers in a matrix for which loading Numba is worth the time


def distances(
    updates: Any,
    *,
    rows: ArrayLike | None = None,
    initial: NDArray[np.float64] | None = None,
    progress: Progress = None,
    backend: BackendName = "auto",
) -> Pass:
    """Squared distances ‖x_i − x_j‖² (m, m) between the picked rows, computed from differences.

    A row that is not finite has distance Inf to all others. To process a matrix in shards of
    columns, pass the distances of the columns before as `initial`; if the shards begin at multiples
    of GRID, the result has the same bits as that of the whole matrix.
    """
    x = matrix(updates)
    picked = picked_rows(x, rows)
    start = np.zeros((picked.size, picked.size)) if initial is None else initial
    return Pass(*_backend(x, backend, "distances").distances(x, picked, start, progress))


def facts(
    updates: Any,
    reference: Any = None,
    *,
    rows: ArrayLike | None = None,
    initial: Facts | None = None,
    progress: Progress = None,
    backend: BackendName = "auto",
) -> Facts:
    """‖x_i‖², x_i·r and ‖x_i − r‖² of the picked rows, in float64; r = 0 without a reference.

    For shards of columns, pass the facts of the columns before as `initial`.
    """
    x = matrix(updates)
    picked, r = picked_rows(x, rows), reference_vector(x, reference)
    start = np.zeros((picked.size, 3)) if initial is None else np.stack(initial[:3], 1)
    total, finite = _backend(x, backend, "facts").facts(x, picked, r, start, progress)
    return Facts(total[:, 0], total[:, 1], total[:, 2], finite)


def combine(
    updates: Any,
    weights: ArrayLike,
    *,
    rows: ArrayLike | None = None,
    progress: Progress = None,
    backend: BackendName = "auto",
) -> Pass:
    """Σ w_i·x_i (d,) over the picked rows; rows of weight zero are not read and count as finite."""
    x = matrix(updates)
    picked = picked_rows(x, rows)
    w = row_numbers("weights", weights, picked.size)
    used, finite = w != 0, np.ones(picked.size, dtype=bool)
    arguments = (picked[used], np.ascontiguousarray(w[used]), progress)
    value, finite[used] = _backend(x, backend, "combine").combine(x, *arguments)
    return Pass(value, finite)


def blend(
    updates: Any,
    weights: ArrayLike,
    reference: Any = None,
    *,
    plus: tuple[float, Any] | None = None,
    rows: ArrayLike | None = None,
    progress: Progress = None,
    backend: BackendName = "auto",
) -> Blend:
    """v = Σ w_i·x_i (d,) over the picked rows and, in the same pass, x_i·r (m,) and v·r.

    With plus=(w, u), w·u is added to the sum. Without a reference r is v itself. The error of
    a product is small beside the largest of them; all are NaN if a row is not finite.
    """
    x = matrix(updates)
    picked = picked_rows(x, rows)
    w = row_numbers("weights", weights, picked.size)
    r = None if reference is None else reference_vector(x, reference)
    share, base = (0.0, None) if plus is None else (float(plus[0]), reference_vector(x, plus[1]))
    chosen = _backend(x, backend, "blend")
    value, own, dots, finite = chosen.blend(x, picked, w, share, base, r, progress)
    if not finite.all():
        return Blend(value, np.full(picked.size, np.nan), math.nan, finite)
    if dots is None:
        r = reference_vector(x, value) if r is None else r
        zeros = np.zeros((picked.size, 3))
        dots = _backend(x, backend, "facts").facts(x, picked, r, zeros, progress)[0][:, 1]
    return Blend(value, dots, own, finite)


def moments(
    updates: Any,
    *,
    rows: ArrayLike | None = None,
    progress: Progress = None,
    backend: BackendName = "auto",
) -> Moments:
    """Mean x̄ (d,) and standard deviation √(1/n Σ(x_i − x̄)²) (d,) of the picked rows.

    The deviation comes from differences and is exact to a few units in its last place, the mean to
    one unit in the last place of the largest number. Neither is finite where a row is not.
    """
    x = matrix(updates)
    return Moments(*_backend(x, backend, "moments").moments(x, picked_rows(x, rows), progress))


def geometry(
    updates: Any,
    *,
    rows: ArrayLike | None = None,
    progress: Progress = None,
    backend: BackendName = "auto",
) -> Geometry:
    """The moments, and the squared distances between the picked rows and mean + std, (m+1, m+1).

    This takes one pass unless squares overflow or underflow. The error of a distance is small
    beside the largest of them; all are NaN if a row is not finite.
    """
    x = matrix(updates)
    picked = picked_rows(x, rows)
    mean, std, finite, sq = _backend(x, backend, "geometry").geometry(x, picked, progress)
    m = picked.size
    if not finite.all():
        return Geometry(mean, std, np.full((m + 1, m + 1), np.nan), finite)
    if sq is None:
        sq = np.zeros((m + 1, m + 1))
        chosen = _backend(x, backend, "distances")
        sq[:m, :m], _ = chosen.distances(x, picked, sq[:m, :m], progress)
        with np.errstate(all="ignore"):  # where mean + std overflows, so do the distances
            last = reference_vector(x, mean + std)
        chosen = _backend(x, backend, "facts")
        to_last, _ = chosen.facts(x, picked, last, np.zeros((m, 3)), progress)
        sq[m, :m] = sq[:m, m] = to_last[:, 2]
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
    backend: BackendName = "auto",
) -> Pass:
    """Per column, the mean (d,) of the order statistics low..high-1.

    With `nearest`, the mean of that many values nearest to the median instead; of two that are
    equally near the lower one counts.

    Before that the picked rows are multiplied by `scale` (m,) and then mixed. `mixing` holds lists
    of positions within the picked rows: row i becomes the mean of the rows in mixing[i]. A matrix
    of floats (n, m) holds weights instead, which is slower: row i becomes Σ_j mixing[i, j]·x_j.
    """
    x = matrix(updates)
    picked = picked_rows(x, rows)
    factors = np.ones(picked.size) if scale is None else row_numbers("scale", scale, picked.size)
    mixed = mixing_lists_or_weights(mixing, picked.size)
    n = picked.size if mixed is None else len(mixed)
    limits = band_limits(n, low, n if high is None else high, nearest)
    chosen = _backend(x, backend, "band")
    return Pass(*chosen.band(x, picked, *limits, mixed, factors, progress))


def columns(
    updates: Any, index: ArrayLike, *, rows: ArrayLike | None = None
) -> NDArray[np.float64]:
    """The picked rows at the columns in `index`, (m, k) in float64."""
    x = matrix(updates)
    picked, chosen = picked_rows(x, rows), indices(index, x.shape[1])
    if not x.is_torch:
        return x.source[np.ix_(picked, chosen)].astype(np.float64)  # type: ignore[no-any-return]
    torch = sys.modules["torch"]
    row, column = (torch.from_numpy(part).to(x.source.device) for part in (picked, chosen))
    part = x.source[row[:, None], column]
    return part.to(torch.float64).cpu().numpy()  # type: ignore[no-any-return]


def picked(updates: Any, rows: ArrayLike | None = None) -> Indices:
    """The numbers of the picked rows: all without `rows`; for a mask those where it is true."""
    return picked_rows(matrix(updates), rows)


def _backend(x: Matrix, name: BackendName, primitive: Primitive) -> Backend:
    """The back end for this input. Equal inputs get the same one, so they give the same bits."""
    if name not in ("auto", "numba", "torch"):
        raise ValueError(f"backend {name!r}: need 'auto', 'numba' or 'torch'")
    large = x.shape[0] * x.shape[1] >= MIN_COMPILED_SIZE
    if x.on_cpu and (name == "numba" or (name == "auto" and large)):
        return backends.load_numba(primitive, x.work, required=name == "numba")
    return backends.load_torch()
