"""How to average lists of rows with few additions, as data: sums of places in a tile.

The rows have the first places, then come sums that several lists share, then the lists
themselves. For few rows two lists share the sum of what they have in common. For many, rows are
taken in fours: each subset of a four that is needed is made once, so that n lists of any length
cost n²/4 additions and 11 more for each four, not n times the lists' length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .types import Array, Rows

Sums = list[list[int]]


class Recipe(NamedTuple):
    """Instructions for a kernel."""

    height: int  # places in a tile; the lists have the last ones
    ends: Rows  # sum k adds places[ends[k]:ends[k + 1]] and has place m + k
    places: Rows
    factor: Array  # (n,) what makes a sum of rows, each of them times `share`, their mean
    share: float  # rows shrink by it before they are added, so that ±1e38 never meet


def unmixed(m: int) -> Recipe:
    """Rows as they are."""
    return Recipe(m, np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0), 1.0)


def recipe(lists: list[Rows], m: int) -> Recipe:
    """The mean of the rows in each list, of m rows in all."""
    plain = [sorted(part.tolist()) for part in lists]
    sums = min(in_pairs(plain, m), in_fours(plain, m), key=cost)
    longest = max(len(part) for part in plain)
    ends = np.cumsum([0] + [len(part) for part in sums])
    places = np.array([place for part in sums for place in part], dtype=np.int64)
    factor = np.array([longest / len(part) for part in plain])
    return Recipe(m + len(sums), ends, places, factor, 1.0 / longest)


def cost(sums: Sums) -> int:
    """About how long it takes: loads, and a store and a start for each sum."""
    return sum(len(part) + 3 for part in sums)


def in_pairs(lists: Sums, m: int) -> Sums:
    """Pair the lists that have most in common; what they have is added once."""
    member = np.zeros((len(lists), m), dtype=np.float32)
    for row, part in zip(member, lists, strict=True):
        row[part] = 1.0
    common = member @ member.T
    np.fill_diagonal(common, -1.0)
    shared: Sums = []
    rest = [set(part) for part in lists]
    for _ in range(len(lists) // 2):
        i, j = divmod(int(np.argmax(common)), len(lists))
        core = rest[i] & rest[j]
        if len(core) < 3:
            break
        shared.append(sorted(core))
        for k in (i, j):
            rest[k] = (rest[k] - core) | {m + len(shared) - 1}
            common[k, :] = common[:, k] = -1.0
    return shared + [sorted(part) for part in rest]


def in_fours(lists: Sums, m: int) -> Sums:
    """Add subsets of fours of rows once, and the lists from these."""
    parts = [_masks(part) for part in lists]
    needed = {mask for part in parts for mask in part}
    for four, mask in list(needed):
        while mask & (mask - 1):  # made of its lowest row and the others
            needed.add((four, mask))
            mask &= mask - 1
    joint = sorted((p for p in needed if p[1] & (p[1] - 1)), key=lambda p: (p[1].bit_count(), p))
    place = {part: m + k for k, part in enumerate(joint)}
    place |= {(row // 4, 1 << row % 4): row for row in range(m)}
    shared = [[place[f, k & -k], place[f, k & (k - 1)]] for f, k in joint]
    return shared + [[place[part] for part in row] for row in parts]


def _masks(rows: list[int]) -> list[tuple[int, int]]:
    """A list of rows as (four, which of its rows)."""
    masks: dict[int, int] = {}
    for row in rows:
        masks[row // 4] = masks.get(row // 4, 0) | 1 << row % 4
    return sorted(masks.items())
