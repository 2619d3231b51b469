"""A matrix as LLVM's instruction builder sees it, and two operations that every kernel needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils as untyped
from numba.extending import intrinsic

cgutils: Any = untyped
boolean, void = (getattr(numba.types, name) for name in ("boolean", "void"))

LINE = 64  # bytes in a vector: one cache line
PREFETCH_DISTANCE = 4  # how many lines ahead to prefetch where rows are read side by side


def generated(function: Callable[..., Any]) -> Any:
    """Declare an operation: the function gets types and returns a signature and its generator."""
    return intrinsic(function)


class Tile:
    """A matrix in generated code, accessed a vector ("line") at a time."""

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
        """Address of the line at the sum of the offsets."""
        address = self.data
        for offset in offsets:
            address = self.builder.gep(address, [offset])
        return self.builder.bitcast(address, self.vector.as_pointer())

    def load(self, *offsets: Any) -> Any:
        """Read a line."""
        return self.builder.load(self.line(*offsets), align=self.size)

    def store(self, value: Any, *offsets: Any) -> None:
        """Write a line."""
        self.builder.store(value, self.line(*offsets), align=self.size)

    def prefetch(self, *offsets: Any) -> None:
        """Start to bring a line into the cache; the address need not be valid."""
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.VoidType(), (byte, number, number, number))
        module, name = self.builder.module, "llvm.prefetch.p0i8"
        target = module.globals.get(name) or ir.Function(module, function, name)
        address = self.builder.bitcast(self.line(*offsets), byte)
        self.builder.call(target, (address, number(0), number(3), number(1)))  # read, nearest, data

    def broadcast(self, number: Any) -> Any:
        """A line in which every lane holds the number."""
        line = ir.Constant(self.vector, None)
        for lane in range(self.lanes):
            line = self.builder.insert_element(line, number, ir.IntType(32)(lane))
        return line

    def loop(self, size: int = LINE) -> Any:
        """Loop over the columns, `size` bytes at a time; the context yields (column, _)."""
        return cgutils.for_range_slice(
            self.builder, self.columns.type(0), self.columns, self.columns.type(size // self.size)
        )


@generated
def prefetch(_: Any, x: Any, position: Any) -> Any:
    """Start to bring the line at a position of a matrix into the cache."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        Tile(context, builder, signature.args[0], values[0]).prefetch(values[1])

    return void(x, position), generate


@generated
def copy_scaled_row(_: Any, t: Any, target: Any, x: Any, start: Any, scale: Any) -> Any:
    """Write scale · x[start:] to the target row; return whether a value is NaN or Inf."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        tile = Tile(context, builder, signature.args[0], values[0])
        source = Tile(context, builder, signature.args[2], values[2])
        target, start, scale = values[1], values[3], values[4]
        zeros = ir.Constant(tile.vector, None)
        factor = tile.broadcast(scale)
        probe = cgutils.alloca_once_value(builder, zeros)
        with tile.loop() as (column, _):
            value = source.load(start, column)
            tile.store(builder.fmul(value, factor), target, column)
            product = builder.fmul(value, zeros)  # NaN for Inf and NaN, else 0
            builder.store(builder.fadd(builder.load(probe), product), probe)
        wrong = builder.fcmp_unordered("!=", builder.load(probe), zeros)
        bits = builder.bitcast(wrong, ir.IntType(tile.lanes))
        return builder.icmp_unsigned("!=", bits, bits.type(0))

    return boolean(t, target, x, start, scale), generate
