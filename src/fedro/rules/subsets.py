"""Exact searches for the best subset of rows: by diameter, variance or largest eigenvalue."""

import math
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedro.rules.rows import Floats, NoAggregateError

Subset = NDArray[np.intp]
MAX_COVER_BRANCHES = 200_000  # branches of the search in `mda`: about two seconds
MAX_SUBSETS = 100_000_000  # subsets whose variance `mva` computes: about two seconds
MAX_HALF_SUBSETS = 20_000  # subsets of half of the rows that `mva` keeps in memory
SUMS_PER_BLOCK = 1 << 17  # variances computed at a time: a megabyte
MAX_SPECTRA = 100_000  # subsets whose eigenvalues `smea` computes: about two seconds


def least_diameter(sq: Floats, size: int) -> Subset:
    """Return the subset of this size with the least diameter, from ‖x_i − x_j‖².

    Bisects over the distances. A subset with no pair further apart than d exists if n − size rows
    cover all pairs that are, as in the vertex cover problem. Few of the rows need branching.
    """
    values, reach = np.unique(sq), np.sort(sq, axis=1)[:, size - 1]
    best = np.sort(np.argsort(sq[np.argmin(reach)], kind="stable")[:size])
    low = int(
        np.searchsorted(values, np.sort(reach)[size - 1])
    )  # `size` rows must reach `size` rows each
    high = int(np.searchsorted(values, sq[np.ix_(best, best)].max()))
    while low < high:
        middle = (low + high) // 2
        left_out = _cover(sq > values[middle], len(sq) - size)
        if left_out is None:
            low = middle + 1
        else:
            high = middle
            best = np.setdiff1d(np.arange(len(sq)), left_out)[:size]
    return best


def _cover(far: NDArray[np.bool_], budget: int) -> list[int] | None:
    """Find at most `budget` rows that touch every far pair; None if there are none.

    Branches on the row with the most far partners. A set of rows is an integer with one bit per
    row, since the search handles many small sets.
    """
    packed = np.packbits(far, axis=1, bitorder="little")
    partners = [int.from_bytes(row.tobytes(), "little") for row in packed]
    stack, nodes = [(list(range(len(far))), (1 << len(far)) - 1, 0)], 0
    while stack:
        nodes += 1
        if nodes > MAX_COVER_BRANCHES:
            raise NoAggregateError(
                f"mda: no exact answer within {MAX_COVER_BRANCHES} steps for {len(far)} rows and "
                f"b={budget}; use mva, or nnm | trimmed_mean, which has no such search"
            )
        rows, alive, out = stack.pop()
        degrees = [(partners[i] & alive).bit_count() for i in rows]
        most, pairs, room = max(degrees, default=0), sum(degrees) // 2, budget - out.bit_count()
        if pairs == 0:
            return [i for i in range(len(far)) if out >> i & 1]
        if most * room < pairs:
            continue  # even the busiest rows could not touch every pair
        busiest = rows[degrees.index(most)]
        without, neighbors = alive & ~(1 << busiest), partners[busiest] & alive
        rows = [i for i, degree in zip(rows, degrees, strict=True) if degree and i != busiest]
        if 1 < most <= room:
            rest = without & ~neighbors
            stack.append(([i for i in rows if rest >> i & 1], rest, out | neighbors))
        stack.append((rows, without, out | 1 << busiest))
    return None


def least_variance(sq: Floats, size: int) -> Subset:
    """Return the subset of this size with the least sum of squared distances."""
    best, least = np.arange(size), np.inf
    for sums, subset_of in variances(sq, size):
        at = int(np.argmin(sums))
        if sums.flat[at] < least:
            best, least = subset_of(at), float(sums.flat[at])
    return best


def least_spread(sq: Floats, size: int) -> Subset:
    """Return the subset of this size whose covariance has the least largest eigenvalue.

    That eigenvalue is at least trace/(size − 1), so subsets are tried in the order of their traces
    until none of the others can be better.
    """
    if math.comb(len(sq), size) > MAX_SPECTRA:
        raise NoAggregateError(
            f"smea: {math.comb(len(sq), size)} subsets of {size} of {len(sq)} rows are more than "
            f"the {MAX_SPECTRA} it tries; use mva or caf, which scale better"
        )
    subsets = np.array(list(combinations(range(len(sq)), size)))
    traces = np.array([sq[np.ix_(s, s)].sum() for s in subsets]) / (2 * size)
    best, least = subsets[0], np.inf
    for at in np.argsort(traces, kind="stable"):
        if traces[at] >= least * max(size - 1, 1):
            break
        value = _top_eigenvalue(sq[np.ix_(subsets[at], subsets[at])])
        if value < least:
            best, least = subsets[at], value
    return np.asarray(best)


def _top_eigenvalue(sq: Floats) -> float:
    """The largest eigenvalue of Σ (x_i − μ)(x_i − μ)ᵀ, from the squared distances."""
    center = np.eye(len(sq)) - 1 / len(sq)
    return max(0.0, float(np.linalg.eigvalsh(-0.5 * center @ sq @ center)[-1]))


def variances(sq: Floats, size: int) -> Iterator[tuple[Floats, Callable[[int], Subset]]]:
    """Yield the sums of squared distances within all subsets of this size, in blocks.

    The rows are split into two halves, and a subset into its parts in each. The sum of a subset is
    the sums within its two parts, which are computed once, and the sum between them, which is one
    matrix product for a whole block. With each block comes a function that returns the subset at a
    position in it.
    """
    n, half = len(sq), len(sq) // 2
    left, right = np.arange(half), np.arange(half, n)
    _check_subsets(n, size)
    for out in range(max(0, n - size - len(right)), min(n - size, half) + 1):
        a, b = _parts(left, half - out), _parts(right, size - half + out)
        between = a @ sq[np.ix_(left, right)]
        within_a, within_b = _within(a, sq[:half, :half]), _within(b, sq[half:, half:])
        step = max(1, SUMS_PER_BLOCK // len(b))
        for start in range(0, len(a), step):
            rows = slice(start, start + step)
            sums = between[rows] @ b.T + within_a[rows, None] + within_b[None, :]

            def subset_of(at: int, a: Floats = a[rows], b: Floats = b) -> Subset:
                parts = (a[at // len(b)], b[at % len(b)])
                return np.flatnonzero(np.concatenate(parts))

            yield sums, subset_of


def _check_subsets(n: int, size: int) -> None:
    half_out = min(n - size, (n + 1) // 4)
    if math.comb(n, size) > MAX_SUBSETS or math.comb((n + 1) // 2, half_out) > MAX_HALF_SUBSETS:
        raise NoAggregateError(
            f"mva: {math.comb(n, size)} subsets of {size} of {n} rows are too many to try; use "
            "multi_krum, caf or nnm | trimmed_mean, which have no such search"
        )


def _parts(rows: Subset, size: int) -> Floats:
    """All subsets of this size, each as a row of zeros and ones."""
    out = list(combinations(range(len(rows)), len(rows) - size))
    parts = np.ones((len(out), len(rows)))
    for part, absent in zip(parts, out, strict=True):
        part[list(absent)] = 0.0
    return parts


def _within(parts: Floats, sq: Floats) -> Floats:
    """The sum of squared distances within each part."""
    return np.asarray(0.5 * np.einsum("ij,ij->i", parts @ sq, parts))
