"""Sums of rows, and scaled rows."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from .tile import AHEAD, LINE, Tile, boolean, cgutils, generated, void

BLOCK = 4 * LINE  # bytes that a sum holds in registers


@generated
def add_rows(_: Any, t: Any, target: Any, rows: Any, first: Any, last: Any) -> Any:
    """Put into the target the sum of the rows rows[first:last], at least one."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        tile = Tile(context, builder, signature.args[0], values[0])
        target, first, last = values[1], values[3], values[4]
        places = context.make_array(signature.args[2])(context, builder, values[2]).data
        index = first.type
        lines = [index(k * tile.lanes) for k in range(BLOCK // LINE)]
        sums = [cgutils.alloca_once(builder, tile.vector) for _ in lines]
        with tile.starts(BLOCK) as (column, _):
            row = builder.load(builder.gep(places, [first]))
            for total, line in zip(sums, lines, strict=True):
                builder.store(tile.load(row, column, line), total)
            rest = builder.add(first, index(1))
            with cgutils.for_range_slice(builder, rest, last, index(1)) as (k, _):
                row = builder.load(builder.gep(places, [k]))
                for total, line in zip(sums, lines, strict=True):
                    value = tile.load(row, column, line)
                    builder.store(builder.fadd(builder.load(total), value), total)
            for total, line in zip(sums, lines, strict=True):
                tile.store(builder.load(total), target, column, line)

    return void(t, target, rows, first, last), generate


@generated
def scale_row(_: Any, t: Any, target: Any, x: Any, start: Any, scale: Any) -> Any:
    """Put into the target scale · x from a place on; return whether a number is NaN or Inf."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        tile = Tile(context, builder, signature.args[0], values[0])
        source = Tile(context, builder, signature.args[2], values[2])
        target, start, scale = values[1], values[3], values[4]
        zeros = ir.Constant(tile.vector, None)
        factor = tile.all(scale)
        probe = cgutils.alloca_once_value(builder, zeros)
        with tile.starts() as (column, _):
            value = source.load(start, column)
            tile.store(builder.fmul(value, factor), target, column)
            seen = builder.fmul(value, zeros)  # NaN for Inf and NaN, else 0
            builder.store(builder.fadd(builder.load(probe), seen), probe)
        wrong = builder.fcmp_unordered("!=", builder.load(probe), zeros)
        bits = builder.bitcast(wrong, ir.IntType(tile.lanes))
        return builder.icmp_unsigned("!=", bits, bits.type(0))

    return boolean(t, target, x, start, scale), generate


@generated
def weigh_rows(_: Any, x: Any, places: Any, weights: Any, out: Any) -> Any:
    """Add to out, in float64, the rows of x that start at places, times their weights."""
    return void(x, places, weights, out), _weigh


@generated
def weigh_and_multiply(
    _: Any, x: Any, places: Any, weights: Any, out: Any, dots: Any, other: Any
) -> Any:
    """The same, and add to the lanes of dots, a line a row, the products with another row."""
    return void(x, places, weights, out, dots, other), _weigh


@generated
def weigh_and_multiply_out(_: Any, x: Any, places: Any, weights: Any, out: Any, dots: Any) -> Any:
    """The same, with out, as it is then, for the other row."""
    return void(x, places, weights, out, dots), _weigh


def _weigh(context: Any, builder: Any, signature: Any, values: Any) -> None:
    """All three; a line of columns is held in registers while the rows go by."""
    kinds = signature.args
    source, places, weights = (Tile(context, builder, kinds[k], values[k]) for k in range(3))
    out = Tile(context, builder, kinds[3], values[3], 8 * source.lanes)
    dots, other = (
        Tile(context, builder, kinds[k], values[k]) if k < len(kinds) else None for k in (4, 5)
    )
    count, total = places.columns, cgutils.alloca_once(builder, out.vector)

    def rows() -> Any:
        return cgutils.for_range_slice(builder, count.type(0), count, count.type(1))

    with out.starts(8 * source.lanes) as (column, _):
        builder.store(out.load(column), total)
        with rows() as (row, _):
            place = builder.load(builder.gep(places.data, [row]))
            source.fetch(place, column, column.type(AHEAD * source.lanes))
            value = source.load(place, column)
            wide = value if source.size == 8 else builder.fpext(value, out.vector)
            weight = out.all(builder.load(builder.gep(weights.data, [row])))
            share = builder.fmul(wide, weight, flags=("contract",))
            builder.store(builder.fadd(builder.load(total), share, flags=("contract",)), total)
        out.store(builder.load(total), column)
        if not dots:
            return
        near = other.load(column) if other else builder.load(total)
        if near.type != source.vector:
            near = builder.fptrunc(near, source.vector)
        with rows() as (row, _):
            place = builder.load(builder.gep(places.data, [row]))
            lane = builder.mul(row, row.type(source.lanes))
            product = builder.fmul(source.load(place, column), near, flags=("contract",))
            dots.store(builder.fadd(dots.load(lane), product, flags=("contract",)), lane)
