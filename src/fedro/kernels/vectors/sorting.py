"""Comparators on rows of a tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from .tile import Tile, generated, void


def _extreme(name: str) -> Callable[[Any, Any, Any], Any]:
    """The smaller or the larger of two vectors, as one instruction; of NaN it may be anything.

    Written as `a if a < b else b`, LLVM makes masked stores of it: five times slower on AMD.
    """

    def choose(builder: Any, a: Any, b: Any) -> Any:
        function = ir.FunctionType(a.type, (a.type, a.type))
        full = f"{name}.v{a.type.count}{a.type.element.intrinsic_name}"
        target = builder.module.globals.get(full) or ir.Function(builder.module, function, full)
        return builder.call(target, (a, b), fastmath=("nnan",))

    return choose


_smaller, _larger = _extreme("llvm.minnum"), _extreme("llvm.maxnum")


@generated
def exchange(_: Any, t: Any, a: Any, b: Any) -> Any:
    """One comparator on rows: (a, b) = (min, max), column by column."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        tile, (a, b) = Tile(context, builder, signature.args[0], values[0]), values[1:]
        with tile.starts() as (column, _):
            p, q = tile.load(a, column), tile.load(b, column)
            tile.store(_smaller(builder, p, q), a, column)
            tile.store(_larger(builder, p, q), b, column)

    return void(t, a, b), generate


@generated
def exchange3(_: Any, t: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Three comparators (a, c), (b, d), (b, c) with one load and one store of each row."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        tile, rows = Tile(context, builder, signature.args[0], values[0]), values[1:]
        with tile.starts() as (column, _):
            p, q, r, s = (tile.load(row, column) for row in rows)
            low, high = _larger(builder, p, r), _smaller(builder, q, s)
            first, last = _smaller(builder, p, r), _larger(builder, q, s)
            middle = _smaller(builder, low, high), _larger(builder, low, high)
            for row, value in zip(rows, (first, *middle, last), strict=True):
                tile.store(value, row, column)

    return void(t, a, b, c, d), generate
