"""Checks of the primitives' arguments: kernels use row numbers without bounds checks."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .backends import Array, Doubles, Indices
from .matrix import Matrix


def indices(values: ArrayLike, size: int) -> Indices:
    """A non-empty list of integers from 0 to size-1."""
    array = np.asarray(values)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise ValueError(f"need a non-empty list of integers, not {values!r}")
    if array.min() < 0 or array.max() >= size:
        raise ValueError(f"index {array.min()}..{array.max()} is outside 0..{size - 1}")
    return np.array(array, dtype=np.int64)  # a copy: of one number reversed, the stride is negative


def picked_rows(x: Matrix, rows: ArrayLike | None) -> Indices:
    """Row numbers: all without `rows`; for a mask those where it is true."""
    if rows is None:
        return np.arange(x.shape[0])
    array = np.asarray(rows)
    if array.dtype == bool and array.shape != (x.shape[0],):
        raise ValueError(f"rows is a mask of shape {array.shape}: need ({x.shape[0]},)")
    return indices(np.flatnonzero(array) if array.dtype == bool else array, x.shape[0])


def row_numbers(name: str, values: ArrayLike, count: int) -> Doubles:
    """One number for each picked row."""
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.shape != (count,):
        raise ValueError(f"{name} has shape {array.shape}: need one for each of {count} rows")
    return array


def mixing_lists_or_weights(mixing: Any, rows: int) -> list[Indices] | Doubles | None:
    """Lists of row numbers, or a matrix of weights."""
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
    members = indices(np.concatenate(lists), rows)
    named = np.zeros((len(lists), rows), dtype=bool)
    named[np.repeat(np.arange(len(lists)), sizes), members] = True
    if named.sum() < members.size:
        raise ValueError("mixing names a row twice in a list: need different rows")
    return np.split(members, np.cumsum(sizes)[:-1])


def reference_vector(x: Matrix, reference: Any) -> Array:
    """A vector (d,) in the type to compute in; zeros, which take no memory, for None."""
    if reference is None:
        return np.zeros(x.shape[1], dtype=x.work)
    if hasattr(reference, "detach"):
        reference = reference.detach().cpu()
        reference = (reference if reference.dtype.itemsize > 2 else reference.float()).numpy()
    vector = np.ascontiguousarray(reference, dtype=x.work)
    if vector.shape != (x.shape[1],):
        raise ValueError(f"reference has shape {vector.shape}: need ({x.shape[1]},)")
    return vector


def band_limits(n: int, low: int, high: int, nearest: int | None) -> tuple[int, int, int]:
    """(low, high, nearest or 0)."""
    low, high = operator.index(low), operator.index(high)
    if not 0 <= low < high <= n:
        raise ValueError(f"band {low}..{high} of {n} rows: need 0 <= low < high <= {n}")
    if nearest is not None and not 1 <= operator.index(nearest) <= n:
        raise ValueError(f"nearest={nearest} of {n} rows: need 1 <= nearest <= {n}")
    return low, high, operator.index(nearest or 0)
