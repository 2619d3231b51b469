"""A model as Flower sends it, named arrays, and as the server knows it, one flat vector.

Parameters come first, then statistics like those of BatchNorm, as in `FlatModel`. Arrays of whole
numbers stay out: the server keeps its own.
"""

import math
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray
from torch import Tensor

from fedro.flower.npy import FLOATS, Refused, read_floats

STATISTICS = ("running_mean", "running_var")


class Part(NamedTuple):
    """An array of the model, and where its numbers are in the vector."""

    shape: tuple[int, ...]
    dtype: str
    place: slice


class Layout:
    """Where each array is in the vector; `kept` are those that take no part.

    Without `statistics`, arrays named ``….running_mean`` and ``….running_var`` are statistics.
    """

    def __init__(self, arrays: ArrayRecord, statistics: Collection[str] | None = None) -> None:
        kinds = {name: np.dtype(array.dtype) for name, array in arrays.items()}
        floats = [name for name, kind in kinds.items() if str(kind) in FLOATS]
        if strange := sorted({*(statistics or ())} - {*floats}):
            raise ValueError(f"statistics={strange[0]!r}: the model has no such array of floats")
        chosen = {n for n in floats if last(n) in STATISTICS} if statistics is None else statistics
        parameters = [name for name in floats if name not in chosen]
        if not parameters:
            raise ValueError("the model has no floating-point parameter: nothing would be learned")
        self.parts: dict[str, Part] = {}
        self.kept = {name: array for name, array in arrays.items() if name not in floats}
        self.names = tuple(arrays)
        self.width = 0
        for name in (*parameters, *(name for name in floats if name in chosen)):
            shape = tuple(arrays[name].shape)
            place = slice(self.width, self.width + math.prod(shape))
            self.parts[name] = Part(shape, str(kinds[name]), place)
            self.width = place.stop
        self.trained = sum(math.prod(self.parts[name].shape) for name in parameters)
        self.variances = [p.place for n, p in self.parts.items() if last(n) == "running_var"]
        wide = any(part.dtype == "float64" for part in self.parts.values())
        self.dtype = torch.float64 if wide else torch.float32

    def write(self, arrays: Mapping[str, Array], row: Tensor, minus: Tensor | None = None) -> None:
        """Write a model's numbers, less others, into a row (width,); or say why they cannot be."""
        if unknown := [name for name in arrays if name not in self.names]:
            raise Refused(f"holds {len(unknown)} arrays that the model has not: {unknown[0]!r}")
        if absent := [name for name in self.parts if name not in arrays]:
            raise Refused(f"lacks {len(absent)} of the model's arrays: {absent[0]!r}")
        numbers, others = row.numpy(), None if minus is None else minus.numpy()
        for name, part in self.parts.items():
            values = read_floats(name, arrays[name], part.shape).reshape(-1)
            out, less = numbers[part.place], 0 if others is None else others[part.place]
            with np.errstate(over="ignore", invalid="ignore"):  # the screen finds what overflows
                np.subtract(values, less, out=out, casting="same_kind")

    def vector(self, arrays: Mapping[str, Array]) -> Tensor:
        """The server's own model as one vector (width,)."""
        vector = torch.empty(self.width, dtype=self.dtype)
        try:
            self.write(arrays, vector)
        except Refused as error:
            raise ValueError(f"the server's model: {error}") from None
        if not torch.isfinite(vector).all():
            raise ValueError("the server's model holds NaN or Inf: start from a finite one")
        return vector

    def ndarrays(self, vector: Tensor) -> dict[str, NDArray[np.generic]]:
        """The model's arrays, by name and in the order in which they were given."""
        numbers = vector.numpy()
        found: dict[str, NDArray[np.generic]] = {}
        for name in self.names:
            if name in self.kept:
                found[name] = self.kept[name].numpy()
            else:
                shape, dtype, place = self.parts[name]
                found[name] = numbers[place].reshape(shape).astype(dtype)
        return found

    def record(self, vector: Tensor) -> ArrayRecord:
        """The model as Flower sends it."""
        return ArrayRecord({name: Array(value) for name, value in self.ndarrays(vector).items()})

    @property
    def fingerprint(self) -> str:
        """A short name for names, shapes and kinds of numbers."""
        text = repr([(name, part) for name, part in self.parts.items()])
        return blake2b(text.encode(), digest_size=8).hexdigest()


def last(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]
