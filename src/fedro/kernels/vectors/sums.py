"""Sums of rows, and scaled rows."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from .tile import LINE, Tile, boolean, cgutils, generated, void

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
    """Put into out, in float64, the sum of rows of x that start at places, times their weights."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        kinds = signature.args
        source = Tile(context, builder, kinds[0], values[0])
        out = Tile(context, builder, kinds[3], values[3], 8 * source.lanes)
        places, weights = (Tile(context, builder, kinds[k], values[k]) for k in (1, 2))
        count = places.columns
        total = cgutils.alloca_once(builder, out.vector)
        with out.starts(8 * source.lanes) as (column, _):
            builder.store(ir.Constant(out.vector, None), total)
            with cgutils.for_range_slice(builder, count.type(0), count, count.type(1)) as (row, _):
                value = source.load(builder.load(builder.gep(places.data, [row])), column)
                wide = value if source.size == 8 else builder.fpext(value, out.vector)
                weight = out.all(builder.load(builder.gep(weights.data, [row])))
                product = builder.fmul(wide, weight, flags=("contract",))
                product = builder.fadd(builder.load(total), product, flags=("contract",))
                builder.store(product, total)
            out.store(builder.load(total), column)

    return void(x, places, weights, out), generate


@generated
def dot_rows(_: Any, x: Any, places: Any, other: Any, out: Any) -> Any:
    """Add to out the inner products of rows of x that start at places with a row of float64."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        kinds = signature.args
        source = Tile(context, builder, kinds[0], values[0])
        other = Tile(context, builder, kinds[2], values[2], 8 * source.lanes)
        places, out = (Tile(context, builder, kinds[k], values[k]) for k in (1, 3))
        count = places.columns
        total = cgutils.alloca_once(builder, other.vector)
        with cgutils.for_range_slice(builder, count.type(0), count, count.type(1)) as (row, _):
            place = builder.load(builder.gep(places.data, [row]))
            builder.store(ir.Constant(other.vector, None), total)
            with other.starts(8 * source.lanes) as (column, _):
                value = source.load(place, column)
                wide = value if source.size == 8 else builder.fpext(value, other.vector)
                product = builder.fmul(wide, other.load(column), flags=("contract",))
                product = builder.fadd(builder.load(total), product, flags=("contract",))
                builder.store(product, total)
            room = builder.gep(out.data, [row])
            lanes = [
                builder.extract_element(builder.load(total), ir.IntType(32)(k))
                for k in range(other.lanes)
            ]
            while len(lanes) > 1:
                lanes = [builder.fadd(*lanes[k : k + 2]) for k in range(0, len(lanes), 2)]
            builder.store(builder.fadd(builder.load(room), lanes[0]), room)

    return void(x, places, other, out), generate
