"""Recipes that average lists of rows with few additions, as data for a kernel.

A recipe is a sequence of sums of rows of a tile. The input rows come first, then the sums that
several lists share, then the sums of the lists themselves. With few rows, two lists share the sum
of what they have in common. With many, rows are grouped in fours, and each subset of a four that
some list needs is summed once: n lists then cost n²/4 additions and 11 more for each four, however
long they are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .backends import Array, Indices

Sums = list[list[int]]


class Recipe(NamedTuple):
    """Instructions for a kernel that mixes m rows into n."""

    height: int  # rows in a tile; the last n hold the result
    ends: Indices  # sum k adds the rows parts[ends[k]:ends[k + 1]] and becomes row m + k
    parts: Indices
    factor: Array  # (n,) turns a sum of rows, each of them times `share`, into their mean
    share: float  # rows are multiplied by it before they are added, so that no sum overflows


def unmixed(m: int) -> Recipe:
    """The recipe that leaves m rows as they are."""
    return Recipe(m, np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0), 1.0)


def recipe(lists: list[Indices], m: int) -> Recipe:
    """The cheapest known recipe for the mean of each list of rows, of m rows in all."""
    plain = [sorted(part.tolist()) for part in lists]
    sums = min(share_pairs(plain, m), share_fours(plain, m), key=cost)
    longest = max(len(part) for part in plain)
    ends = np.cumsum([0] + [len(part) for part in sums])
    parts = np.array([row for part in sums for row in part], dtype=np.int64)
    factor = np.array([longest / len(part) for part in plain])
    return Recipe(m + len(sums), ends, parts, factor, 1.0 / longest)


def cost(sums: Sums) -> int:
    """Approximate time of the sums: one load per row, and a store and some overhead per sum."""
    return sum(len(part) + 3 for part in sums)


def share_pairs(lists: Sums, m: int) -> Sums:
    """Pair the lists that have most in common, and sum what two paired lists share once."""
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


def share_fours(lists: Sums, m: int) -> Sums:
    """Sum each needed subset of a four of rows once, and the lists from these sums."""
    parts = [_masks(part) for part in lists]
    needed = {mask for part in parts for mask in part}
    for four, mask in list(needed):
        while mask & (mask - 1):  # its sum is that of its lowest row and of all others
            needed.add((four, mask))
            mask &= mask - 1
    joint = sorted((p for p in needed if p[1] & (p[1] - 1)), key=lambda p: (p[1].bit_count(), p))
    row_of = {part: m + k for k, part in enumerate(joint)}
    row_of |= {(row // 4, 1 << row % 4): row for row in range(m)}
    shared = [[row_of[f, k & -k], row_of[f, k & (k - 1)]] for f, k in joint]
    return shared + [[row_of[part] for part in masks] for masks in parts]


def _masks(rows: list[int]) -> list[tuple[int, int]]:
    """A list of rows as pairs (number of a four, bit mask of its rows)."""
    masks: dict[int, int] = {}
    for row in rows:
        masks[row // 4] = masks.get(row // 4, 0) | 1 << row % 4
    return sorted(masks.items())
