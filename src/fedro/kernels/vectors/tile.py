"""A matrix as the code generator sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils as untyped
from numba.extending import intrinsic

cgutils: Any = untyped
boolean, void = (getattr(numba.types, name) for name in ("boolean", "void"))

LINE = 64  # bytes of a vector: a cache line
AHEAD = 4  # lines before one is needed that it is asked for, where rows go by side by side


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

    def fetch(self, *offsets: Any) -> None:
        """Have a line brought to the cache; nothing waits for it, and it need not exist."""
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.VoidType(), (byte, number, number, number))
        module, name = self.builder.module, "llvm.prefetch.p0i8"
        target = module.globals.get(name) or ir.Function(module, function, name)
        address = self.builder.bitcast(self.line(*offsets), byte)
        self.builder.call(target, (address, number(0), number(3), number(1)))  # read, nearest, data

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


@generated
def prefetch(_: Any, x: Any, place: Any) -> Any:
    """Have the line at a place of a matrix brought to the cache; nothing waits for it."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> None:
        Tile(context, builder, signature.args[0], values[0]).fetch(values[1])

    return void(x, place), generate
