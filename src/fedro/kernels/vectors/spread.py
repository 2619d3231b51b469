"""Mean and deviation of columns, in registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from .tile import AHEAD, Tile, boolean, cgutils, generated

SLACK = 1 / 64  # the share of a variance, at most, that a rounded mean may account for
VARIANCES = 2.0**-100, 2.0**100  # that are trusted: no square of a gap is then lost


@generated
def spread_rows(_: Any, x: Any, places: Any, count: Any, mean: Any, std: Any) -> Any:
    """Put mean and deviation (1/count) of columns of x there; return whether it went well.

    The first `count` rows start at `places`. Their mean comes from differences from the first of
    them, so that of equal numbers is exact; then it is corrected by the mean difference from it.
    It is no good if that is not small, or a variance out of range: then nothing counts.
    """
    return boolean(x, places, count, mean, std), _generate


@generated
def spread_tile(_: Any, x: Any, places: Any, count: Any, mean: Any, std: Any, tile: Any) -> Any:
    """The same, and put the rows into a tile, then mean + deviation; all minus about the mean.

    Distances between these are those between the points themselves, with less rounding.
    """
    return boolean(x, places, count, mean, std, tile), _generate


def _generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Both; columns of a line are held in registers while the rows are gone through twice."""
    kinds, count = signature.args, values[2]
    source, mean, std = (Tile(context, builder, kinds[k], values[k]) for k in (0, 3, 4))
    tile = Tile(context, builder, kinds[5], values[5]) if len(kinds) > 5 else None
    starts = context.make_array(kinds[1])(context, builder, values[1]).data
    number, index, zeros = source.vector.element, count.type, ir.Constant(source.vector, None)
    bits = ir.VectorType(ir.IntType(8 * source.size), source.lanes)
    share = source.all(builder.fdiv(number(1.0), builder.sitofp(count, number)))
    least, most, little = (source.all(number(value)) for value in (*VARIANCES, SLACK))
    total, squares = (cgutils.alloca_once(builder, source.vector) for _ in range(2))
    unequal = cgutils.alloca_once(builder, bits)
    well = cgutils.alloca_once_value(builder, builder.fcmp_ordered("==", zeros, zeros))

    def rows() -> Any:
        return cgutils.for_range_slice(builder, index(0), count, index(1))

    def add(room: Any, value: Any) -> None:
        builder.store(builder.fadd(builder.load(room), value, flags=("contract",)), room)

    with mean.starts() as (column, _):
        origin = source.load(builder.load(starts), column)
        builder.store(zeros, total)
        builder.store(ir.Constant(bits, None), unequal)
        with rows() as (row, _):
            place = builder.load(builder.gep(starts, [row]))
            if not tile:  # else whoever fills tiles fetches ahead
                source.fetch(place, column, index(AHEAD * source.lanes))
            gap = builder.fsub(source.load(place, column), origin)
            add(total, gap)
            builder.store(builder.or_(builder.load(unequal), builder.bitcast(gap, bits)), unequal)
        center = builder.fadd(origin, builder.fmul(builder.load(total), share))
        builder.store(zeros, total)
        builder.store(zeros, squares)
        with rows() as (row, _):
            value = source.load(builder.load(builder.gep(starts, [row])), column)
            gap = builder.fsub(value, center)
            if tile:
                tile.store(gap, builder.mul(row, tile.columns), column)
            add(total, gap)
            add(squares, builder.fmul(gap, gap, flags=("contract",)))
        rest, square = (builder.fmul(builder.load(room), share) for room in (total, squares))
        excess = builder.fmul(rest, rest)
        fits = builder.fcmp_ordered("<=", excess, builder.fmul(square, little))
        for small, large in ((least, square), (square, most)):
            fits = builder.and_(fits, builder.fcmp_ordered("<=", small, large))
        doubled = builder.shl(builder.load(unequal), ir.Constant(bits, [1] * source.lanes))
        same = builder.icmp_unsigned("==", doubled, ir.Constant(bits, None))  # but for signs of 0
        builder.store(builder.and_(builder.load(well), builder.or_(fits, same)), well)
        middle = builder.fadd(center, rest)
        deviation = _root(builder, builder.fsub(square, excess))
        mean.store(middle, column)
        std.store(deviation, column)
        if tile:
            tile.store(builder.fadd(rest, deviation), builder.mul(count, tile.columns), column)
    flags = builder.bitcast(builder.load(well), ir.IntType(source.lanes))
    return builder.icmp_unsigned("==", flags, flags.type(-1))


def _root(builder: Any, value: Any) -> Any:
    """The square roots of a vector."""
    name = f"llvm.sqrt.v{value.type.count}{value.type.element.intrinsic_name}"
    function = ir.FunctionType(value.type, (value.type,))
    target = builder.module.globals.get(name) or ir.Function(builder.module, function, name)
    return builder.call(target, (value,))
