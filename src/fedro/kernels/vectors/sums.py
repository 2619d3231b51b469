"""Sums of rows, and scaled rows."""

from __future__ import annotations

from collections.abc import Iterator
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

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        source, places, weights, out = _tiles(context, builder, signature.args[:4], values[:4])
        with out.starts(8 * source.lanes) as (column, _):
            out.store(_weighed(source, places, weights, column, out.load(column)), column)

    return void(x, places, weights, out), generate


@generated
def blend_rows(
    _: Any, x: Any, places: Any, weights: Any, own: Any, share: Any, base: Any, out: Any, dots: Any
) -> Any:
    """out = share·base + the rows of x that start at places, times their weights.

    Add to the lanes of dots, a line a row, the products of the rows with out, and to those of own,
    in float64, out·out.
    """
    return void(x, places, weights, own, share, base, out, dots), _blend


@generated
def blend_and_multiply(
    _: Any,
    x: Any,
    places: Any,
    weights: Any,
    own: Any,
    share: Any,
    base: Any,
    out: Any,
    dots: Any,
    other: Any,
) -> Any:
    """The same, with products with another row."""
    return void(x, places, weights, own, share, base, out, dots, other), _blend


def _tiles(context: Any, builder: Any, kinds: Any, values: Any) -> Iterator[Tile]:
    """Tiles in lines of the first one's lanes, which are wider for float64."""
    first = Tile(context, builder, kinds[0], values[0])
    yield first
    for kind, value in zip(kinds[1:], values[1:], strict=True):
        yield Tile(context, builder, kind, value, first.lanes * kind.dtype.bitwidth // 8)


def _weighed(source: Tile, places: Tile, weights: Tile, column: Any, start: Any) -> Any:
    """The start plus the rows times their weights, held in registers while the rows go by."""
    builder, count = source.builder, places.columns
    total = cgutils.alloca_once_value(builder, start)
    with cgutils.for_range_slice(builder, count.type(0), count, count.type(1)) as (row, _):
        place = builder.load(builder.gep(places.data, [row]))
        source.fetch(place, column, column.type(AHEAD * source.lanes))
        value = _as(builder, source.load(place, column), start.type)
        weight = weights.all(builder.load(builder.gep(weights.data, [row])))
        share = builder.fmul(value, weight, flags=("contract",))
        builder.store(builder.fadd(builder.load(total), share, flags=("contract",)), total)
    return builder.load(total)


def _blend(context: Any, builder: Any, signature: Any, values: Any) -> None:
    """Both ways; a line's rows are in the first cache when they are multiplied."""
    kinds, share = signature.args, values[4]
    which = [k for k in range(len(kinds)) if k != 4]
    source, places, weights, own, base, out, dots, *others = _tiles(
        context, builder, [kinds[k] for k in which], [values[k] for k in which]
    )
    count, zero = places.columns, places.columns.type(0)
    with out.starts() as (column, _):
        start = _as(builder, base.load(column), own.vector)
        start = builder.fmul(start, own.all(share))
        total = _weighed(source, places, weights, column, start)
        near = others[0].load(column) if others else _as(builder, total, source.vector)
        out.store(_as(builder, total, source.vector), column)
        product = builder.fmul(total, _as(builder, near, own.vector))
        own.store(builder.fadd(own.load(zero), product), zero)
        with cgutils.for_range_slice(builder, zero, count, count.type(1)) as (row, _):
            place = builder.load(builder.gep(places.data, [row]))
            lane = builder.mul(row, row.type(source.lanes))
            product = builder.fmul(source.load(place, column), near, flags=("contract",))
            dots.store(builder.fadd(dots.load(lane), product, flags=("contract",)), lane)


def _as(builder: Any, value: Any, vector: Any) -> Any:
    """A vector of floats as one of another size."""
    if value.type == vector:
        return value
    narrow = isinstance(vector.element, ir.FloatType)
    return builder.fptrunc(value, vector) if narrow else builder.fpext(value, vector)
