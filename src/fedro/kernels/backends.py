"""The interface of the two back ends, the types it uses, and the fallback from Numba to torch."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .matrix import Matrix

Array = NDArray[Any]
Doubles = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
Progress = Callable[[int, int], None] | None  # (columns finished, columns in all)

BackendName = Literal["auto", "numba", "torch"]
Primitive = Literal["distances", "facts", "combine", "blend", "moments", "geometry", "band"]

TESTED_NUMBA = ">=0.61,<0.69"  # as in pyproject.toml


class Pass(NamedTuple):
    """Result of one pass over the data."""

    value: Any
    finite: Mask  # (m,) which of the picked rows hold neither NaN nor Inf


class Blend(NamedTuple):
    """A weighted sum of rows, and inner products in float64."""

    value: Any  # (d,)
    dots: Doubles  # (m,) x_i·r
    own: float  # value·r
    finite: Mask  # (m,)


class Moments(NamedTuple):
    """Mean and standard deviation of each column."""

    mean: Any  # (d,)
    std: Any  # (d,)
    finite: Mask  # (m,)


class Geometry(NamedTuple):
    """Mean and standard deviation of each column, and distances between the rows."""

    mean: Any  # (d,)
    std: Any  # (d,)
    sq: Doubles  # (m+1, m+1) squared distances; the last point is mean + std
    finite: Mask  # (m,)


class Facts(NamedTuple):
    """Norm, product with a reference r and distance to it, for each row, in float64."""

    squared: Doubles  # (m,) ‖x_i‖²
    dots: Doubles  # (m,) x_i·r
    gaps: Doubles  # (m,) ‖x_i − r‖²
    finite: Mask  # (m,)

    def only(self, mask: Mask) -> Facts:
        """The facts about the rows in the mask."""
        return Facts(self.squared[mask], self.dots[mask], self.gaps[mask], self.finite[mask])


class Backend(Protocol):
    """What `numba_backend` and `torch_backend` implement, as module-level functions.

    `fedro.kernels` checks all arguments before it calls them. Every function ends its result with
    the mask of the rows that hold neither NaN nor Inf, unless noted otherwise.
    """

    def distances(
        self, x: Matrix, rows: Indices, initial: Doubles, progress: Progress
    ) -> tuple[Doubles, Mask]:
        """(m, m) squared distances, added to `initial`."""

    def facts(
        self, x: Matrix, rows: Indices, reference: Array, initial: Doubles, progress: Progress
    ) -> tuple[Doubles, Mask]:
        """(m, 3): ‖x_i‖², x_i·r and ‖x_i − r‖², added to `initial`."""

    def combine(
        self, x: Matrix, rows: Indices, weights: Doubles, progress: Progress
    ) -> tuple[Any, Mask]:
        """Σ w_i·x_i (d,); zeros if there is no row."""

    def blend(
        self,
        x: Matrix,
        rows: Indices,
        weights: Doubles,
        share: float,
        base: Array | None,
        reference: Array | None,
        progress: Progress,
    ) -> tuple[Any, float, Doubles | None, Mask]:
        """v = Σ w_i·x_i + share·base (d,), v·r, and x_i·r (m,) or None if these were inexact.

        Without a reference r is v.
        """

    def moments(self, x: Matrix, rows: Indices, progress: Progress) -> tuple[Any, Any, Mask]:
        """Mean and standard deviation (1/n) of each column, (d,) each."""

    def geometry(
        self, x: Matrix, rows: Indices, progress: Progress
    ) -> tuple[Any, Any, Mask, Doubles | None]:
        """Moments, mask, and (m+1, m+1) squared distances, or None if these were inexact.

        The distances are those between the rows and, last, mean + deviation.
        """

    def band(
        self,
        x: Matrix,
        rows: Indices,
        low: int,
        high: int,
        nearest: int,
        mixing: list[Indices] | Doubles | None,
        scale: Doubles,
        progress: Progress,
    ) -> tuple[Any, Mask]:
        """Per column, the mean of the order statistics low..high-1 of the scaled, mixed rows (d,).

        With `nearest` > 0, the mean of that many values nearest to the median.
        """


_lock = threading.Lock()
_numba_failed = False


def load_torch() -> Backend:
    """The back end in torch operations."""
    from . import torch_backend as module

    return module


def load_numba(primitive: Primitive, dtype: np.dtype[Any], required: bool = False) -> Backend:
    """The Numba back end, with the kernel of this primitive compiled; torch's if that fails.

    The kernels are built with Numba's extension interface and llvmlite, which other versions may
    change. The first failure warns; from then on the process does not try Numba again. With
    `required`, a failure raises instead.
    """
    global _numba_failed
    if required or not _numba_failed:
        try:
            from . import numba_backend as module

            module.prepare(primitive, dtype)
        except Exception as error:
            if required:
                raise RuntimeError(_failure(error)) from error
            with _lock:
                first, _numba_failed = not _numba_failed, True
            if first:
                warnings.warn(_failure(error), RuntimeWarning, stacklevel=4)
        else:
            return module
    return load_torch()


def _failure(error: Exception) -> str:
    """What went wrong, with which versions, and what follows."""
    reason = (str(error).strip() or "no message").splitlines()[0]
    return (
        f"fedro cannot build its kernels with numba {_version('numba')} and llvmlite "
        f"{_version('llvmlite')} ({type(error).__name__}: {reason}). Large aggregations run on the "
        "slower torch back end instead; their results differ only by rounding. "
        f"fedro is tested with numba {TESTED_NUMBA}: pip install 'numba{TESTED_NUMBA}'"
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"
