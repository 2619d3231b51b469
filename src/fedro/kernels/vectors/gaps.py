"""Squared differences of rows of a tile, added up in registers."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from llvmlite import ir

from .tile import Tile, cgutils, generated, void

HALF = 32  # bytes of a vector: eight sums and six rows of them are held in registers


@generated
def add_gaps(_: Any, t: Any, a: Any, p: Any, s: Any, place: Any) -> Any:
    """Add (u − v)² for the two rows u from a on and the four rows v from p on, lane by lane.

    The sums are eight vectors from a place on: (a, p), (a, p+1) … (a+1, p+3).
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        tile, sums = (Tile(context, builder, signature.args[k], values[k], HALF) for k in (0, 3))
        rows = [*_rows(tile, values[1], 2), *_rows(tile, values[2], 4)]
        _add(tile, rows, [(u, v) for u in (0, 1) for v in (2, 3, 4, 5)], sums, values[4])

    return void(t, a, p, s, place), generate


@generated
def add_own_gaps(_: Any, t: Any, a: Any, s: Any, place: Any) -> Any:
    """The same for the six pairs of the four rows from a on: (a, a+1), (a, a+2) … (a+2, a+3)."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        tile, sums = (Tile(context, builder, signature.args[k], values[k], HALF) for k in (0, 2))
        _add(tile, _rows(tile, values[1], 4), list(combinations(range(4), 2)), sums, values[3])

    return void(t, a, s, place), generate


def _rows(tile: Tile, first: Any, count: int) -> list[Any]:
    """The places of some rows, from one on."""
    builder = tile.builder
    return [builder.add(first, builder.mul(tile.columns, first.type(k))) for k in range(count)]


def _add(tile: Tile, rows: list[Any], pairs: list[tuple[int, int]], sums: Tile, place: Any) -> None:
    """Add the squared differences of pairs of rows to vectors of sums, held in registers."""
    builder = tile.builder
    places = [builder.add(place, place.type(k * tile.lanes)) for k in range(len(pairs))]
    totals = [cgutils.alloca_once_value(builder, sums.load(where)) for where in places]
    with tile.starts(HALF) as (column, _):
        lines = [tile.load(row, column) for row in rows]
        for (u, v), total in zip(pairs, totals, strict=True):
            gap = builder.fsub(lines[u], lines[v])
            square = builder.fmul(gap, gap, flags=("contract",))
            value = builder.fadd(builder.load(total), square, flags=("contract",))
            builder.store(value, total)
    for where, total in zip(places, totals, strict=True):
        sums.store(builder.load(total), where)


@generated
def fold(_: Any, s: Any, totals: Any) -> Any:
    """totals[k] = the sum of the lanes of the k-th vector of sums, which is then set to zero.

    Eight at a time: neighbors are added until as many numbers as vectors are left.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        sums, out = (Tile(context, builder, signature.args[k], values[k], HALF) for k in (0, 1))
        number, lanes = ir.IntType(32), sums.lanes
        evens, odds = (
            ir.Constant(
                ir.VectorType(number, lanes), [number(k + o) for k in range(0, 2 * lanes, 2)]
            )
            for o in (0, 1)
        )
        with out.starts(8 * out.size) as (first, _):
            begin = builder.mul(first, first.type(lanes))
            places = [builder.add(begin, first.type(k * lanes)) for k in range(8)]
            left = [sums.load(place) for place in places]
            while len(left) * lanes > 8:
                pairs = zip(left[::2], left[1::2], strict=True)
                left = [
                    builder.fadd(*(builder.shuffle_vector(a, b, which) for which in (evens, odds)))
                    for a, b in pairs
                ]
            for k, value in enumerate(left):
                out.store(value, first, first.type(k * lanes))
            for place in places:
                sums.store(ir.Constant(sums.vector, None), place)

    return void(s, totals), generate
