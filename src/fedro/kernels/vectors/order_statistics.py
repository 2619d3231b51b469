"""Comparators on rows of a tile, for sorting networks, and sums of its rows, for mixing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from .tile import LINE, Tile, cgutils, generated, void

BLOCK = 4 * LINE  # bytes that `add_rows` keeps in registers


def _extreme(name: str) -> Callable[[Any, Any, Any], Any]:
    """The smaller or the larger of two vectors, as one instruction; undefined for NaN.

    LLVM turns `a if a < b else b` into masked stores, which are five times slower on AMD.
    """

    def choose(builder: Any, a: Any, b: Any) -> Any:
        function = ir.FunctionType(a.type, (a.type, a.type))
        full = f"{name}.v{a.type.count}{a.type.element.intrinsic_name}"
        target = builder.module.globals.get(full) or ir.Function(builder.module, function, full)
        return builder.call(target, (a, b), fastmath=("nnan",))

    return choose


_smaller, _larger = _extreme("llvm.minnum"), _extreme("llvm.maxnum")


@generated
def compare_exchange(_: Any, t: Any, a: Any, b: Any) -> Any:
    """One comparator on two rows: (a, b) = (min, max), column by column."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        tile, (a, b) = Tile(context, builder, signature.args[0], values[0]), values[1:]
        with tile.loop() as (column, _):
            p, q = tile.load(a, column), tile.load(b, column)
            tile.store(_smaller(builder, p, q), a, column)
            tile.store(_larger(builder, p, q), b, column)

    return void(t, a, b), generate


@generated
def compare_exchange3(_: Any, t: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Three comparators (a, c), (b, d), (b, c) with one load and one store of each row."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        tile, rows = Tile(context, builder, signature.args[0], values[0]), values[1:]
        with tile.loop() as (column, _):
            p, q, r, s = (tile.load(row, column) for row in rows)
            low, high = _larger(builder, p, r), _smaller(builder, q, s)
            first, last = _smaller(builder, p, r), _larger(builder, q, s)
            middle = _smaller(builder, low, high), _larger(builder, low, high)
            for row, value in zip(rows, (first, *middle, last), strict=True):
                tile.store(value, row, column)

    return void(t, a, b, c, d), generate


@generated
def add_rows(_: Any, t: Any, target: Any, rows: Any, first: Any, last: Any) -> Any:
    """Write the sum of rows[first:last], of which there is at least one, to the target row."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        tile = Tile(context, builder, signature.args[0], values[0])
        target, first, last = values[1], values[3], values[4]
        positions = context.make_array(signature.args[2])(context, builder, values[2]).data
        index = first.type
        lines = [index(k * tile.lanes) for k in range(BLOCK // LINE)]
        sums = [cgutils.alloca_once(builder, tile.vector) for _ in lines]
        with tile.loop(BLOCK) as (column, _):
            row = builder.load(builder.gep(positions, [first]))
            for total, line in zip(sums, lines, strict=True):
                builder.store(tile.load(row, column, line), total)
            second = builder.add(first, index(1))
            with cgutils.for_range_slice(builder, second, last, index(1)) as (k, _):
                row = builder.load(builder.gep(positions, [k]))
                for total, line in zip(sums, lines, strict=True):
                    value = tile.load(row, column, line)
                    builder.store(builder.fadd(builder.load(total), value), total)
            for total, line in zip(sums, lines, strict=True):
                tile.store(builder.load(total), target, column, line)

    return void(t, target, rows, first, last), generate
