"""Weighted sums of rows and moments of columns, held in registers while the rows are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from .tile import PREFETCH_DISTANCE, Tile, boolean, cgutils, generated, void

MAX_MEAN_ERROR = 1 / 64  # the largest share of a variance that may be due to a rounded mean
VARIANCE_RANGE = 2.0**-100, 2.0**100  # within it no square of a difference was lost


@generated
def add_weighted_rows(_: Any, x: Any, positions: Any, weights: Any, out: Any) -> Any:
    """Add to out, in float64, the rows of x at these positions times their weights."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        source, positions, weights, out = _tiles(context, builder, signature.args[:4], values[:4])
        with out.loop(8 * source.lanes) as (column, _):
            out.store(_weighted_sum(source, positions, weights, column, out.load(column)), column)

    return void(x, positions, weights, out), generate


@generated
def blend_rows(
    _: Any,
    x: Any,
    positions: Any,
    weights: Any,
    own: Any,
    share: Any,
    base: Any,
    out: Any,
    dots: Any,
) -> Any:
    """out = share·base + the rows of x at these positions, times their weights.

    Adds the products of the rows with out to the lanes of dots, one line for each row, and out·out
    to the lanes of own, in float64.
    """
    return void(x, positions, weights, own, share, base, out, dots), _blend


@generated
def blend_rows_with_reference(
    _: Any,
    x: Any,
    positions: Any,
    weights: Any,
    own: Any,
    share: Any,
    base: Any,
    out: Any,
    dots: Any,
    reference: Any,
) -> Any:
    """`blend_rows`, but with the products of the rows and of out with a reference."""
    return void(x, positions, weights, own, share, base, out, dots, reference), _blend


def _tiles(context: Any, builder: Any, kinds: Any, values: Any) -> Iterator[Tile]:
    """Tiles whose lines have as many lanes as the first one's; those of float64 are longer."""
    first = Tile(context, builder, kinds[0], values[0])
    yield first
    for kind, value in zip(kinds[1:], values[1:], strict=True):
        yield Tile(context, builder, kind, value, first.lanes * kind.dtype.bitwidth // 8)


def _weighted_sum(source: Tile, positions: Tile, weights: Tile, column: Any, start: Any) -> Any:
    """`start` plus the weighted rows, for one line of columns."""
    builder, count = source.builder, positions.columns
    total = cgutils.alloca_once_value(builder, start)
    with cgutils.for_range_slice(builder, count.type(0), count, count.type(1)) as (row, _):
        position = builder.load(builder.gep(positions.data, [row]))
        source.prefetch(position, column, column.type(PREFETCH_DISTANCE * source.lanes))
        value = _convert(builder, source.load(position, column), start.type)
        weight = weights.broadcast(builder.load(builder.gep(weights.data, [row])))
        product = builder.fmul(value, weight, flags=("contract",))
        builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)
    return builder.load(total)


def _blend(context: Any, builder: Any, signature: Any, values: Any) -> None:
    """Code of both blends; a line of each row is in the first cache when it is multiplied."""
    kinds, share = signature.args, values[4]
    arrays = [k for k in range(len(kinds)) if k != 4]
    source, positions, weights, own, base, out, dots, *references = _tiles(
        context, builder, [kinds[k] for k in arrays], [values[k] for k in arrays]
    )
    count, zero = positions.columns, positions.columns.type(0)
    with out.loop() as (column, _):
        start = _convert(builder, base.load(column), own.vector)
        start = builder.fmul(start, own.broadcast(share))
        total = _weighted_sum(source, positions, weights, column, start)
        narrow = _convert(builder, total, source.vector)
        reference = references[0].load(column) if references else narrow
        out.store(narrow, column)
        product = builder.fmul(total, _convert(builder, reference, own.vector))
        own.store(builder.fadd(own.load(zero), product), zero)
        with cgutils.for_range_slice(builder, zero, count, count.type(1)) as (row, _):
            position = builder.load(builder.gep(positions.data, [row]))
            lane = builder.mul(row, row.type(source.lanes))
            product = builder.fmul(source.load(position, column), reference, flags=("contract",))
            dots.store(builder.fadd(dots.load(lane), product, flags=("contract",)), lane)


def _convert(builder: Any, value: Any, vector: Any) -> Any:
    """A vector of floats in another precision."""
    if value.type == vector:
        return value
    narrow = isinstance(vector.element, ir.FloatType)
    return builder.fptrunc(value, vector) if narrow else builder.fpext(value, vector)


@generated
def column_moments(_: Any, x: Any, positions: Any, count: Any, mean: Any, std: Any) -> Any:
    """Write mean and deviation (1/count) of columns of x; return whether they are exact enough.

    The `count` rows start at `positions`. The mean is computed from differences from the first
    row, so that equal numbers give an exact mean, and is then corrected by the mean difference from
    it. If that correction is not small, or a variance is out of range, the results are useless.
    """
    return boolean(x, positions, count, mean, std), _moments


@generated
def column_moments_and_tile(
    _: Any, x: Any, positions: Any, count: Any, mean: Any, std: Any, tile: Any
) -> Any:
    """`column_moments`, which also writes the rows and then mean + deviation into a tile.

    About the mean is subtracted from all of them, so that their distances have less rounding.
    """
    return boolean(x, positions, count, mean, std, tile), _moments


def _moments(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Code of both; two passes over the rows for each line of columns."""
    kinds, count = signature.args, values[2]
    source, mean, std = (Tile(context, builder, kinds[k], values[k]) for k in (0, 3, 4))
    tile = Tile(context, builder, kinds[5], values[5]) if len(kinds) > 5 else None
    positions = context.make_array(kinds[1])(context, builder, values[1]).data
    number, index, zeros = source.vector.element, count.type, ir.Constant(source.vector, None)
    bits = ir.VectorType(ir.IntType(8 * source.size), source.lanes)
    share = source.broadcast(builder.fdiv(number(1.0), builder.sitofp(count, number)))
    lowest, highest, max_error = (
        source.broadcast(number(value)) for value in (*VARIANCE_RANGE, MAX_MEAN_ERROR)
    )
    total, squares = (cgutils.alloca_once(builder, source.vector) for _ in range(2))
    unequal = cgutils.alloca_once(builder, bits)
    exact = cgutils.alloca_once_value(builder, builder.fcmp_ordered("==", zeros, zeros))

    def rows() -> Any:
        return cgutils.for_range_slice(builder, index(0), count, index(1))

    def add(register: Any, value: Any) -> None:
        builder.store(builder.fadd(builder.load(register), value, flags=("contract",)), register)

    with mean.loop() as (column, _):
        origin = source.load(builder.load(positions), column)
        builder.store(zeros, total)
        builder.store(ir.Constant(bits, None), unequal)
        with rows() as (row, _):
            position = builder.load(builder.gep(positions, [row]))
            if not tile:  # a kernel that fills tiles prefetches them itself
                source.prefetch(position, column, index(PREFETCH_DISTANCE * source.lanes))
            gap = builder.fsub(source.load(position, column), origin)
            add(total, gap)
            builder.store(builder.or_(builder.load(unequal), builder.bitcast(gap, bits)), unequal)
        center = builder.fadd(origin, builder.fmul(builder.load(total), share))
        builder.store(zeros, total)
        builder.store(zeros, squares)
        with rows() as (row, _):
            value = source.load(builder.load(builder.gep(positions, [row])), column)
            gap = builder.fsub(value, center)
            if tile:
                tile.store(gap, builder.mul(row, tile.columns), column)
            add(total, gap)
            add(squares, builder.fmul(gap, gap, flags=("contract",)))
        correction, square = (builder.fmul(builder.load(r), share) for r in (total, squares))
        excess = builder.fmul(correction, correction)
        fits = builder.fcmp_ordered("<=", excess, builder.fmul(square, max_error))
        for small, large in ((lowest, square), (square, highest)):
            fits = builder.and_(fits, builder.fcmp_ordered("<=", small, large))
        doubled = builder.shl(builder.load(unequal), ir.Constant(bits, [1] * source.lanes))
        same = builder.icmp_unsigned("==", doubled, ir.Constant(bits, None))  # but for signs of 0
        builder.store(builder.and_(builder.load(exact), builder.or_(fits, same)), exact)
        deviation = _square_root(builder, builder.fsub(square, excess))
        mean.store(builder.fadd(center, correction), column)
        std.store(deviation, column)
        if tile:
            last = builder.fadd(correction, deviation)
            tile.store(last, builder.mul(count, tile.columns), column)
    flags = builder.bitcast(builder.load(exact), ir.IntType(source.lanes))
    return builder.icmp_unsigned("==", flags, flags.type(-1))


def _square_root(builder: Any, value: Any) -> Any:
    """The square root of each lane."""
    name = f"llvm.sqrt.v{value.type.count}{value.type.element.intrinsic_name}"
    function = ir.FunctionType(value.type, (value.type,))
    target = builder.module.globals.get(name) or ir.Function(builder.module, function, name)
    return builder.call(target, (value,))
