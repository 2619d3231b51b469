"""Operations on whole rows of a tile, written as vector instructions.

A loop over rows that may overlap carries checks that cost as much as a short row itself; here
everything is loaded before anything is stored, so there is nothing to check. Rows are given by
the place of their first number in the tile. Their length is a multiple of `BLOCK` bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils as untyped
from numba.extending import intrinsic

cgutils: Any = untyped
boolean, void = (getattr(numba.types, name) for name in ("boolean", "void"))

LINE = 64  # bytes of a vector: a cache line
HALF = 32  # bytes of a vector where many are held in registers
SLACK = 1 / 64  # the share of a variance, at most, that a rounded mean may account for
BLOCK = 4 * LINE  # bytes that a sum holds in registers


def generated(function: Callable[..., Any]) -> Any:
    """Code for kernels: the function gets types, and returns a signature and what writes it."""
    return intrinsic(function)


class Tile:
    """A matrix of numbers, as the code generator sees it."""

    def __init__(
        self, context: Any, builder: Any, kind: Any, value: Any, vector: int = LINE
    ) -> None:
        self.builder = builder
        self.size = kind.dtype.bitwidth // 8
        self.lanes = vector // self.size
        self.vector = ir.VectorType(context.get_data_type(kind.dtype), self.lanes)
        array = context.make_array(kind)(context, builder, value)
        self.data = array.data
        self.columns = cgutils.unpack_tuple(builder, array.shape)[-1]

    def line(self, *offsets: Any) -> Any:
        """The address of a line."""
        place = self.data
        for offset in offsets:
            place = self.builder.gep(place, [offset])
        return self.builder.bitcast(place, self.vector.as_pointer())

    def load(self, *offsets: Any) -> Any:
        """The line that starts at a place."""
        return self.builder.load(self.line(*offsets), align=self.size)

    def store(self, value: Any, *offsets: Any) -> None:
        """Write a line."""
        self.builder.store(value, self.line(*offsets), align=self.size)

    def all(self, number: Any) -> Any:
        """A line of one number."""
        found = ir.Constant(self.vector, None)
        for lane in range(self.lanes):
            found = self.builder.insert_element(found, number, ir.IntType(32)(lane))
        return found

    def starts(self, size: int = LINE) -> Any:
        """Run the block over the columns, `size` bytes at a time; it gets the column."""
        return cgutils.for_range_slice(
            self.builder, self.columns.type(0), self.columns, self.columns.type(size // self.size)
        )


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


def _root(builder: Any, value: Any) -> Any:
    """The square roots of a vector."""
    name = f"llvm.sqrt.v{value.type.count}{value.type.element.intrinsic_name}"
    function = ir.FunctionType(value.type, (value.type,))
    target = builder.module.globals.get(name) or ir.Function(builder.module, function, name)
    return builder.call(target, (value,))


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


@generated
def add_gaps(_: Any, t: Any, a: Any, p: Any, s: Any, place: Any) -> Any:
    """Add (u − v)² for the two rows u from a on and the four rows v from p on, lane by lane.

    The sums are eight vectors from a place on: (a, p), (a, p+1) … (a+1, p+3).
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        tile, sums = (Tile(context, builder, signature.args[k], values[k], HALF) for k in (0, 3))
        a, p, place = values[1], values[2], values[4]
        two = [a, builder.add(a, tile.columns)]
        four = [builder.add(p, builder.mul(tile.columns, p.type(k))) for k in range(4)]
        places = [builder.add(place, p.type(k * tile.lanes)) for k in range(8)]
        totals = [cgutils.alloca_once_value(builder, sums.load(where)) for where in places]
        with tile.starts(HALF) as (column, _):
            left = [tile.load(row, column) for row in two]
            for k, row in enumerate(four):
                right = tile.load(row, column)
                for u, total in zip(left, (totals[k], totals[k + 4]), strict=True):
                    gap = builder.fsub(u, right)
                    square = builder.fmul(gap, gap, flags=("contract",))
                    value = builder.fadd(builder.load(total), square, flags=("contract",))
                    builder.store(value, total)
        for where, total in zip(places, totals, strict=True):
            sums.store(builder.load(total), where)

    return void(t, a, p, s, place), generate


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


@generated
def prefetch(_: Any, x: Any, place: Any) -> Any:
    """Have the line at a place of a matrix brought to the cache; nothing waits for it."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.VoidType(), (byte, number, number, number))
        name = "llvm.prefetch.p0i8"
        target = builder.module.globals.get(name) or ir.Function(builder.module, function, name)
        address = builder.bitcast(builder.gep(data, [values[1]]), byte)
        builder.call(target, (address, number(0), number(3), number(1)))  # to read, nearest, data

    return void(x, place), generate


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
def spread_rows(_: Any, x: Any, places: Any, count: Any, low: Any, high: Any, out: Any) -> Any:
    """Put mean and deviation (1/count) of columns of x into two rows; return whether it went well.

    The first `count` rows start at `places`. Their mean comes from differences from the first of
    them, so that of equal numbers is exact; then it is corrected by the mean difference from it.
    It is no good if that is not small, or differences not from low to high: nothing counts then.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds, (count, low, high) = signature.args, values[2:5]
        source, out = (Tile(context, builder, kinds[k], values[k]) for k in (0, 5))
        starts = context.make_array(kinds[1])(context, builder, values[1]).data
        number, index, zero = source.vector.element, count.type, ir.Constant(source.vector, None)
        share = source.all(builder.fdiv(number(1.0), builder.sitofp(count, number)))
        least, most, little = source.all(low), source.all(high), source.all(number(SLACK))
        first, second, largest = (cgutils.alloca_once(builder, source.vector) for _ in range(3))
        well = cgutils.alloca_once_value(builder, builder.fcmp_ordered("==", zero, zero))

        @contextmanager
        def rows(column: Any, center: Any) -> Iterator[Any]:
            """Add up the differences from a center; the block may do more with each."""
            builder.store(zero, first)
            with cgutils.for_range_slice(builder, index(0), count, index(1)) as (row, _):
                value = source.load(builder.load(builder.gep(starts, [row])), column)
                gap = builder.fsub(value, center)
                builder.store(builder.fadd(builder.load(first), gap), first)
                yield gap

        with out.starts() as (column, _):
            origin = source.load(builder.load(starts), column)
            with rows(column, origin):
                pass
            center = builder.fadd(origin, builder.fmul(builder.load(first), share))
            builder.store(zero, second)
            builder.store(zero, largest)
            with rows(column, center) as gap:
                square = builder.fmul(gap, gap, flags=("contract",))
                square = builder.fadd(builder.load(second), square, flags=("contract",))
                builder.store(square, second)
                size = _larger(builder, gap, builder.fneg(gap))
                builder.store(_larger(builder, builder.load(largest), size), largest)
            rest, square = (builder.fmul(builder.load(room), share) for room in (first, second))
            size, excess = builder.load(largest), builder.fmul(rest, rest)
            fits = builder.fcmp_ordered("<=", excess, builder.fmul(square, little))
            for small, large in ((least, size), (size, most)):
                fits = builder.and_(fits, builder.fcmp_ordered("<=", small, large))
            none = builder.fcmp_ordered("==", builder.fadd(square, size), zero)  # and no NaN
            builder.store(builder.and_(builder.load(well), builder.or_(fits, none)), well)
            out.store(builder.fadd(center, rest), column)
            out.store(_root(builder, builder.fsub(square, excess)), column, out.columns)
        bits = builder.bitcast(builder.load(well), ir.IntType(source.lanes))
        return builder.icmp_unsigned("==", bits, bits.type(-1))

    return boolean(x, places, count, low, high, out), generate
