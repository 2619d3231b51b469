"""Operations on whole rows, of a tile or of the matrix, written as vector instructions.

A loop over rows that may overlap carries checks that cost as much as a short row itself; here
everything is loaded before anything is stored, so there is nothing to check. Rows are given by
the place of their first number. Their length is a multiple of `LINE` bytes, for `add_rows` of four.
"""

from .gaps import HALF, add_gaps, add_own_gaps, fold
from .sorting import exchange, exchange3
from .spread import spread_rows, spread_tile
from .sums import add_rows, blend_and_multiply, blend_rows, scale_row, weigh_rows
from .tile import LINE, Tile, cgutils, generated, prefetch, void

__all__ = [
    "HALF",
    "LINE",
    "Tile",
    "add_gaps",
    "add_own_gaps",
    "add_rows",
    "blend_and_multiply",
    "blend_rows",
    "cgutils",
    "exchange",
    "exchange3",
    "fold",
    "generated",
    "prefetch",
    "scale_row",
    "spread_rows",
    "spread_tile",
    "void",
    "weigh_rows",
]
