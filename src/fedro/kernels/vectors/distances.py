"""Squared differences between rows of a tile, summed in registers."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from llvmlite import ir

from .tile import Tile, cgutils, generated, void

HALF = 32  # bytes in a vector here: eight sums and six rows of this size fit into the registers


@generated
def add_squared_differences(_: Any, t: Any, a: Any, p: Any, s: Any, position: Any) -> Any:
    """Add (u − v)², lane by lane, for the two rows u from a on and the four rows v from p on.

    The sums are eight vectors in s, from `position` on: (a, p), (a, p+1) … (a+1, p+3).
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        tile, sums = (Tile(context, builder, signature.args[k], values[k], HALF) for k in (0, 3))
        rows = [*_rows(tile, values[1], 2), *_rows(tile, values[2], 4)]
        _add(tile, rows, [(u, v) for u in (0, 1) for v in (2, 3, 4, 5)], sums, values[4])

    return void(t, a, p, s, position), generate


@generated
def add_squared_differences_within(_: Any, t: Any, a: Any, s: Any, position: Any) -> Any:
    """Add (u − v)² for the six pairs of the four rows from a on: (a, a+1) … (a+2, a+3)."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        tile, sums = (Tile(context, builder, signature.args[k], values[k], HALF) for k in (0, 2))
        _add(tile, _rows(tile, values[1], 4), list(combinations(range(4), 2)), sums, values[3])

    return void(t, a, s, position), generate


def _rows(tile: Tile, first: Any, count: int) -> list[Any]:
    """Positions of `count` rows, of which the first starts at `first`."""
    builder = tile.builder
    return [builder.add(first, builder.mul(tile.columns, first.type(k))) for k in range(count)]


def _add(
    tile: Tile, rows: list[Any], pairs: list[tuple[int, int]], sums: Tile, position: Any
) -> None:
    """Add the squared differences of pairs of rows to vectors of sums, held in registers."""
    builder = tile.builder
    positions = [builder.add(position, position.type(k * tile.lanes)) for k in range(len(pairs))]
    totals = [cgutils.alloca_once_value(builder, sums.load(where)) for where in positions]
    with tile.loop(HALF) as (column, _):
        lines = [tile.load(row, column) for row in rows]
        for (u, v), total in zip(pairs, totals, strict=True):
            difference = builder.fsub(lines[u], lines[v])
            square = builder.fmul(difference, difference, flags=("contract",))
            value = builder.fadd(builder.load(total), square, flags=("contract",))
            builder.store(value, total)
    for where, total in zip(positions, totals, strict=True):
        sums.store(builder.load(total), where)


@generated
def sum_lanes(_: Any, s: Any, totals: Any) -> Any:
    """totals[k] = the sum of the lanes of the k-th vector in s, which is then set to zero.

    Takes eight vectors at a time and adds neighbors until eight numbers are left.
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
        with out.loop(8 * out.size) as (first, _):
            begin = builder.mul(first, first.type(lanes))
            positions = [builder.add(begin, first.type(k * lanes)) for k in range(8)]
            vectors = [sums.load(position) for position in positions]
            while len(vectors) * lanes > 8:
                pairs = zip(vectors[::2], vectors[1::2], strict=True)
                vectors = [
                    builder.fadd(*(builder.shuffle_vector(a, b, which) for which in (evens, odds)))
                    for a, b in pairs
                ]
            for k, value in enumerate(vectors):
                out.store(value, first, first.type(k * lanes))
            for position in positions:
                sums.store(ir.Constant(sums.vector, None), position)

    return void(s, totals), generate
