"""Arrays that strangers send, read without trust: nothing is allocated for what a header claims."""

import io
import math

import numpy as np
from flwr.app import Array
from numpy.lib import format as npy
from numpy.typing import NDArray

FLOATS = ("float16", "float32", "float64")
HEADER = 10_000  # bytes; NumPy's own limit
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class Refused(Exception):  # noqa: N818 (an answer, not a fault)
    """Why a message cannot be used."""


def read_floats(name: str, array: Array, shape: tuple[int, ...]) -> NDArray[np.floating]:
    """The numbers of an array that must have this shape, as a view of the message's bytes."""
    if array.stype != "numpy.ndarray":
        raise Refused(f"{name!r} is not written as a NumPy array")
    size = math.prod(shape)
    if len(array.data) > 8 * size + HEADER:
        raise Refused(f"{name!r} has {len(array.data):,} bytes, too many for shape {shape}")
    start = io.BytesIO(array.data[:HEADER])
    try:
        found, fortran, dtype = HEADERS[npy.read_magic(start)](start)
    except Exception as error:
        raise Refused(f"{name!r} is not a NumPy array: {type(error).__name__}") from None
    if found != shape:
        raise Refused(f"{name!r} has shape {found} instead of {shape}")
    if str(dtype.newbyteorder("=")) not in FLOATS:
        raise Refused(f"{name!r} holds numbers of type {str(dtype)[:40]} instead of floats")
    if len(array.data) != start.tell() + size * dtype.itemsize:
        raise Refused(f"{name!r} does not have the bytes that its shape {shape} needs")
    if not size:
        return np.empty(shape, dtype)
    numbers = np.frombuffer(array.data, dtype, offset=start.tell())
    return numbers.reshape(shape, order="F" if fortran else "C")
