"""A model as named arrays, which Flower sends, and as one flat vector, which the server works with.

Parameters come first in the vector, then statistics such as those of BatchNorm. Arrays of integers
are not in the vector; the server keeps its own copy. Arrays from clients are untrusted: the size
that a header claims is compared with the bytes that are there before anything is allocated.

A model can also travel in its flat form, as one array (`fedro.flower.flat_arrays`).
"""

import io
import math
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from fedro.flower.flat_form import FLAT, FlatForm, Slot

STATISTICS = ("running_mean", "running_var")
COUNTERS = ("num_batches_tracked",)  # integers that need no training
FLOATS = ("float16", "float32", "float64")
MAX_HEADER_BYTES = 10_000  # NumPy's own limit
MAX_METRICS_BYTES = 2**20  # in a reply, besides the arrays
HEADER_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class UnusableReply(Exception):  # noqa: N818 (an outcome, not an error of the program)
    """The reason why a reply cannot be used."""


class ArraySlot(NamedTuple):
    """An array of the model and its place in the vector."""

    shape: tuple[int, ...]
    dtype: str
    place: slice


class ArrayLayout:
    """Where each array of the model is in the vector.

    Args:
        arrays: The model.
        statistics: The names of the arrays that are statistics. By default these are the arrays
            named ``….running_mean`` and ``….running_var``.
    """

    def __init__(self, arrays: ArrayRecord, statistics: Collection[str] | None = None) -> None:
        dtypes = {name: np.dtype(array.dtype) for name, array in arrays.items()}
        floats = [name for name, dtype in dtypes.items() if str(dtype) in FLOATS]
        for name, dtype in dtypes.items():
            if str(dtype) not in FLOATS and dtype.kind not in "iub":
                raise ValueError(
                    f"the model's array {name!r} has the type {dtype}, which cannot be aggregated: "
                    f"use {', '.join(FLOATS)}; a complex array can be sent as two real ones"
                )
        if strange := sorted({*(statistics or ())} - {*floats}):
            raise ValueError(f"statistics={strange[0]!r}: the model has no such array of floats")
        chosen = statistics
        if chosen is None:
            chosen = {name for name in floats if last_part(name) in STATISTICS}
        parameters = [name for name in floats if name not in chosen]
        if not parameters:
            raise ValueError("the model has no floating-point parameter: there is nothing to train")
        self.slots: dict[str, ArraySlot] = {}
        self.kept = {name: array for name, array in arrays.items() if name not in floats}
        self.names = tuple(arrays)
        self.width = 0
        for name in (*parameters, *(name for name in floats if name in chosen)):
            shape = tuple(arrays[name].shape)
            place = slice(self.width, self.width + math.prod(shape))
            self.slots[name] = ArraySlot(shape, str(dtypes[name]), place)
            self.width = place.stop
        self.trained = sum(math.prod(self.slots[name].shape) for name in parameters)
        self.variances = [s.place for n, s in self.slots.items() if last_part(n) == "running_var"]
        has_float64 = any(slot.dtype == "float64" for slot in self.slots.values())
        self.dtype = torch.float64 if has_float64 else torch.float32

    @property
    def untrained(self) -> list[str]:
        """The arrays of integers that are not known counters. They are never trained."""
        return [name for name in self.kept if last_part(name) not in COUNTERS]

    @property
    def max_reply_bytes(self) -> int:
        """More bytes than an honest reply can have, with numbers of any type."""
        numbers = self.width + sum(math.prod(array.shape) for array in self.kept.values())
        return 8 * numbers + MAX_HEADER_BYTES * len(self.names) + MAX_METRICS_BYTES

    def write(self, arrays: Mapping[str, Array], row: Tensor, minus: Tensor | None = None) -> None:
        """Write a model, minus another vector, into a row, or raise UnusableReply.

        The model may have its named arrays, or be in its flat form.
        """
        if FLAT in arrays and len(arrays) == 1:
            flat = read_floats(FLAT, arrays[FLAT], (self.width,))
            subtract_into(row.numpy(), flat, 0 if minus is None else minus.numpy())
            return
        if unknown := [name for name in arrays if name not in self.names]:
            raise UnusableReply(
                f"holds {len(unknown)} arrays that the model does not have: {unknown[0]!r}"
            )
        if absent := [name for name in self.slots if name not in arrays]:
            raise UnusableReply(f"lacks {len(absent)} of the model's arrays: {absent[0]!r}")
        numbers, others = row.numpy(), None if minus is None else minus.numpy()
        for name, slot in self.slots.items():
            values = read_floats(name, arrays[name], slot.shape).reshape(-1)
            minus_values = 0 if others is None else others[slot.place]
            subtract_into(numbers[slot.place], values, minus_values)

    def vector(self, arrays: Mapping[str, Array]) -> Tensor:
        """The server's own model as one vector (width,)."""
        vector = torch.empty(self.width, dtype=self.dtype)
        try:
            self.write(arrays, vector)
        except UnusableReply as error:
            raise ValueError(f"the server's model: {error}") from None
        if not torch.isfinite(vector).all():
            raise ValueError("the server's model holds NaN or Inf: start from a finite one")
        return vector

    def ndarrays(self, vector: Tensor) -> dict[str, NDArray[np.generic]]:
        """The model's arrays by name, in the order of the initial model."""
        numbers = vector.numpy()
        arrays: dict[str, NDArray[np.generic]] = {}
        for name in self.names:
            if name in self.kept:
                arrays[name] = self.kept[name].numpy()
            else:
                shape, dtype, place = self.slots[name]
                arrays[name] = numbers[place].reshape(shape).astype(dtype)
        return arrays

    def record(self, vector: Tensor) -> ArrayRecord:
        """The model as Flower sends it."""
        return ArrayRecord({name: Array(value) for name, value in self.ndarrays(vector).items()})

    @property
    def flat_form(self) -> FlatForm:
        """How the model is written as one array."""
        slots = [Slot(name, slot.dtype, slot.shape) for name, slot in self.slots.items()]
        kept = [Slot(name, a.dtype, tuple(a.shape)) for name, a in self.kept.items()]
        return FlatForm(self.names, slots, kept)

    def flat_record(self, vector: Tensor) -> ArrayRecord:
        """The model in its flat form."""
        return self.flat_form.record(vector.numpy(), [a.numpy() for a in self.kept.values()])

    @property
    def fingerprint(self) -> str:
        """A hash of the arrays' names, shapes and dtypes."""
        text = repr([(name, *slot) for name, slot in self.slots.items()])
        return blake2b(text.encode(), digest_size=8).hexdigest()


def read_floats(name: str, array: Array, shape: tuple[int, ...]) -> NDArray[np.floating]:
    """Read an untrusted array that must have this shape, as a view of the message's bytes."""
    if array.stype != "numpy.ndarray":
        raise UnusableReply(f"{name!r} is not written as a NumPy array")
    size = math.prod(shape)
    if len(array.data) > 8 * size + MAX_HEADER_BYTES:
        raise UnusableReply(f"{name!r} has {len(array.data):,} bytes, too many for shape {shape}")
    start = io.BytesIO(array.data[:MAX_HEADER_BYTES])
    try:
        claimed, fortran, dtype = HEADER_READERS[npy.read_magic(start)](start)
    except Exception as error:
        raise UnusableReply(f"{name!r} is not a NumPy array: {type(error).__name__}") from None
    if claimed != shape:
        raise UnusableReply(f"{name!r} has shape {claimed} instead of {shape}")
    if str(dtype.newbyteorder("=")) not in FLOATS:
        raise UnusableReply(f"{name!r} holds numbers of type {str(dtype)[:40]} instead of floats")
    if len(array.data) != start.tell() + size * dtype.itemsize:
        raise UnusableReply(f"{name!r} does not have the bytes that its shape {shape} needs")
    if not size:
        return np.empty(shape, dtype)
    numbers = np.frombuffer(array.data, dtype, offset=start.tell())
    return numbers.reshape(shape, order="F" if fortran else "C")


def subtract_into(
    out: NDArray[np.floating], values: NDArray[np.floating], minus: NDArray[np.floating] | int
) -> None:
    """Write values − minus; `screen` rejects what overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        np.subtract(values, minus, out=out, casting="same_kind")


def last_part(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]
