"""Operations on whole rows, of a tile or of the matrix, written as LLVM vector instructions.

A Numba loop over rows that may overlap checks for the overlap, which costs as much as a short row
itself. Here every operation loads everything before it stores anything, so it needs no check.

A row is given by the position of its first number in the flat array. The length of a row is a
multiple of `LINE` bytes, and for `add_rows` a multiple of four lines.
"""

from .distances import HALF, add_squared_differences, add_squared_differences_within, sum_lanes
from .order_statistics import add_rows, compare_exchange, compare_exchange3
from .sums import (
    add_weighted_rows,
    blend_rows,
    blend_rows_with_reference,
    column_moments,
    column_moments_and_tile,
)
from .tile import LINE, copy_scaled_row, prefetch

__all__ = [
    "HALF",
    "LINE",
    "add_rows",
    "add_squared_differences",
    "add_squared_differences_within",
    "add_weighted_rows",
    "blend_rows",
    "blend_rows_with_reference",
    "column_moments",
    "column_moments_and_tile",
    "compare_exchange",
    "compare_exchange3",
    "copy_scaled_row",
    "prefetch",
    "sum_lanes",
]
