"""Sorting networks as arrays of instructions, so that another n or band compiles nothing.

A comparator (low, high) puts two wires in order. Most comparators of Batcher's network come in
threes, (a, c) (b, d) (b, c), which a kernel runs with one load and one store of each wire.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Pair = tuple[int, int]


@lru_cache(maxsize=1024)
def network(rows: int, low: int, high: int) -> NDArray[np.int64]:
    """Instructions (k, 4) that put the order statistics low..high-1 of `rows` values in place.

    (a, b, c, d) is a triple; (a, b, -1, -1) is one comparator.
    """
    pairs = prune(batcher(rows), low, high)
    result = np.array(fuse(pairs), dtype=np.int64).reshape(-1, 4)
    result.flags.writeable = False
    return result


def batcher(rows: int) -> list[Pair]:
    """Batcher's odd-even merge sort, without the wires past `rows`, which would hold +inf."""
    pairs = []
    size = 1 << max(rows - 1, 0).bit_length()
    p = 1
    while p < size:
        k = p
        while k >= 1:
            pairs += _layer(size, p, k)
            k //= 2
        p *= 2
    return [(a, b) for a, b in pairs if b < rows]


def _layer(size: int, p: int, k: int) -> list[Pair]:
    """One layer: wires k apart, within the same block of 2p that is being merged."""
    return [
        (i + j, i + j + k)
        for j in range(k % p, size - k, 2 * k)
        for i in range(min(k, size - j - k))
        if (i + j) // (2 * p) == (i + j + k) // (2 * p)
    ]


def prune(pairs: list[Pair], low: int, high: int) -> list[Pair]:
    """Walk backward and keep a comparator only if one of its outputs is used later."""
    used = set(range(low, high))
    kept: list[Pair] = []
    for pair in reversed(pairs):
        if used.intersection(pair):
            used.update(pair)
            kept.append(pair)
    return kept[::-1]


def fuse(pairs: list[Pair]) -> list[tuple[int, int, int, int]]:
    """Join comparators into triples; the order on every wire stays as it was."""
    queues: dict[int, list[int]] = {}  # the next comparators on each wire, the first one last
    for number, pair in reversed(list(enumerate(pairs))):
        for wire in pair:
            queues.setdefault(wire, []).append(number)
    result, used = [], set[int]()
    for number, (low, high) in enumerate(pairs):
        if number in used:
            continue
        triple = _triple(pairs, queues, number)
        for member in triple or (number,):
            used.add(member)
            for wire in pairs[member]:
                queues[wire].remove(member)
        other = pairs[triple[1]] if triple else None
        result.append((low, other[0], high, other[1]) if other else (low, high, -1, -1))
    return result


def _triple(
    pairs: list[Pair], queues: dict[int, list[int]], first: int
) -> tuple[int, int, int] | None:
    """The triple that starts with comparator `first`, if the others come next on their wires."""
    c = pairs[first][1]
    if len(queues[c]) < 2:
        return None
    third = queues[c][-2]
    b = pairs[third][0]
    if pairs[third][1] != c or len(queues[b]) < 2 or queues[b][-2] != third:
        return None
    second = queues[b][-1]
    if second == first or pairs[second][0] != b:
        return None
    ready = queues[pairs[second][1]][-1] == second
    return (first, second, third) if ready else None
