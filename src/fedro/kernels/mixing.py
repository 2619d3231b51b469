"""How to average lists of rows with few additions, as data.

Short lists are added row by row. For long ones rows are taken in fours: a tile has a place for the
sum of every subset of each four (16·q + mask), so a list is at most one place per four, and n
lists of any length cost n²/4 additions and 11 more per four, not n times the lists' length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .types import Array, Rows

SHORT = 16  # rows in a list that is added row by row


class Recipe(NamedTuple):
    """Instructions for a kernel."""

    height: int  # places in a tile
    where: Rows  # (m,) the place of each row
    adds: Rows  # (k, 3) place a = place b + place c, in order
    lists: Rows  # (n, 8·j) the places to add for each mixed row; place 0 holds zeros
    factor: Array  # (n,) what makes a sum of rows, each of them times `share`, their mean
    share: float  # rows shrink by it before they are added, so that ±1e38 never meet


def unmixed(m: int) -> Recipe:
    """Rows as they are."""
    nothing = np.empty((0, 3), dtype=np.int64)
    return Recipe(m, np.arange(m), nothing, np.empty((0, 8), dtype=np.int64), np.empty(0), 1.0)


def recipe(lists: list[Rows], m: int) -> Recipe:
    """The mean of the rows in each list, of m rows in all."""
    longest, index = max(len(part) for part in lists), np.arange(m)
    if longest <= SHORT:
        height, where, places = m + 1, index + 1, [(part + 1).tolist() for part in lists]
    else:
        height, where = 16 * -(-m // 4), 16 * (index // 4) + (1 << index % 4)
        places = [_places(part) for part in lists]
    width = max(len(part) for part in places)
    table = np.zeros((len(lists), width + -width % 8), dtype=np.int64)
    for row, part in zip(table, places, strict=True):
        row[: len(part)] = part
    adds = _adds(table if longest > SHORT else table[:0])
    factor = np.array([longest / len(part) for part in lists])
    return Recipe(height, where, adds, table, factor, 1.0 / longest)


def _places(rows: Rows) -> list[int]:
    """The subsets of fours that a list of rows is made of."""
    masks: dict[int, int] = {}
    for row in rows.tolist():
        masks[row // 4] = masks.get(row // 4, 0) | 1 << row % 4
    return [16 * four + mask for four, mask in sorted(masks.items())]


def _adds(table: Rows) -> Rows:
    """How to make the places that are used and hold more than one row: lowest row + the others."""
    used: set[int] = set()
    for place in np.unique(table).tolist():
        base, mask = place - place % 16, place % 16
        while mask & (mask - 1):
            used.add(base + mask)
            mask &= mask - 1
    adds = []
    for place in sorted(used):
        base, mask = place - place % 16, place % 16
        adds.append((place, base + (mask & -mask), base + (mask & (mask - 1))))
    adds.sort(key=lambda add: bin(add[0] % 16).count("1"))  # what is added to comes first
    return np.array(adds, dtype=np.int64).reshape(-1, 3)
