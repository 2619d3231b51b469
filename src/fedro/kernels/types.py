"""The types that the primitives share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Progress = Callable[[int, int], None] | None  # (columns done, columns in all)


class Pass(NamedTuple):
    """What one pass over the data gives."""

    value: Any
    finite: Mask  # (m,) which of the picked rows hold neither NaN nor Inf


class Blend(NamedTuple):
    """A combination of rows and its inner products, in float64."""

    value: Any  # (d,)
    dots: NDArray[np.float64]  # (m,) x_i·r
    own: float  # value·r
    finite: Mask  # (m,)


class Moments(NamedTuple):
    """Mean and standard deviation of each column."""

    mean: Any  # (d,)
    std: Any  # (d,)
    finite: Mask  # (m,)


class Geometry(NamedTuple):
    """Mean and standard deviation of each column, and how far the rows are from each other."""

    mean: Any  # (d,)
    std: Any  # (d,)
    sq: NDArray[np.float64]  # (m+1, m+1) squared distances; the last point is mean + std
    finite: Mask  # (m,)


class Facts(NamedTuple):
    """Small facts about each row, in float64."""

    squared: NDArray[np.float64]  # (m,) ‖x_i‖²
    dots: NDArray[np.float64]  # (m,) x_i·r
    gaps: NDArray[np.float64]  # (m,) ‖x_i − r‖²
    finite: Mask  # (m,)

    def only(self, mask: Mask) -> Facts:
        """The facts about some of the rows."""
        return Facts(self.squared[mask], self.dots[mask], self.gaps[mask], self.finite[mask])
