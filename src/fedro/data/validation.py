"""Check and convert the arrays of clients; errors say which file or client is wrong, and how."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from fedro.common.checks import count
from fedro.data.federation import Array

MAX_CLASSES = 1_000_000


class ArrayFormat(NamedTuple):
    """Shapes and types, which must be the same for all clients."""

    shape: tuple[int, ...]  # of one input
    dtype: Any  # of the inputs, after conversion
    target_shape: tuple[int, ...]
    target_dtype: Any

    def check_same(self, first: "ArrayFormat", where: str) -> None:
        """Raise unless the format is that of the first client."""
        names = ("x of shape", "x of type", "y of shape", "y of type")
        for name, own, model in zip(names, self, first, strict=True):
            if own != model:
                raise ValueError(
                    f"{where}: {name} {own}, but the first client has {model}; make them equal"
                )


def array_format(
    x: tuple[tuple[int, ...], Any], y: tuple[tuple[int, ...], Any], where: str
) -> ArrayFormat:
    """Return the format of arrays of these (shape, type) after conversion, or raise."""
    (x_shape, x_type), (y_shape, y_type) = x, y
    if x_type != np.uint8 and x_type.kind != "f":
        raise ValueError(f"{where}: x is of type {x_type}; need uint8 images or floating numbers")
    if y_type.kind not in "uibf":
        raise ValueError(
            f"{where}: y is of type {y_type}; need whole numbers (labels) or floats (targets)"
        )
    if y_type.kind != "f" and len(y_shape) != 1:
        raise ValueError(f"{where}: labels y have shape {y_shape}; need one for each example")
    if not x_shape or not y_shape or x_shape[0] != y_shape[0]:
        raise ValueError(
            f"{where}: x has shape {x_shape} and y {y_shape}; need one row of each for each example"
        )
    return ArrayFormat(
        x_shape[1:],
        x_type if x_type == np.uint8 else np.dtype(np.float32),
        y_shape[1:],
        np.dtype(np.float32 if y_type.kind == "f" else np.int64),
    )


def as_array(values: Any) -> Array:
    """Convert a tensor, or anything NumPy understands, to an array."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return np.asarray(values.float() if values.is_floating_point() else values)
    return np.asarray(values)


def convert(values: Array, dtype: Any, where: str) -> Array:
    """Convert values to the type of their format; floating ones must be finite."""
    with np.errstate(over="ignore"):
        converted = values.astype(dtype, copy=False)
    if converted.dtype.kind == "f" and not (finite := np.isfinite(converted)).all():
        raise ValueError(
            f"{where} holds NaN, infinite or too large numbers, {int((~finite).sum())} in all; "
            "clean the data first"
        )
    return converted


def count_classes(labels: Sequence[Array], given: int | None, name: str) -> int:
    """Return the number of classes: as given, else the largest label + 1; 0 for targets."""
    if labels[0].dtype.kind == "f":
        if given is not None:
            raise ValueError(
                f"{name}: classes={given}, but y are floating numbers (targets of a regression); "
                "make labels whole numbers"
            )
        return 0
    used = [y for y in labels if len(y)]
    low, high = min(int(y.min()) for y in used), max(int(y.max()) for y in used)
    allowed = MAX_CLASSES if given is None else count("classes", given, 1, MAX_CLASSES)
    if low < 0 or high >= allowed:
        raise ValueError(
            f"{name}: label {low if low < 0 else high} is not from 0 to {allowed - 1}; "
            "number the classes from 0, without gaps"
        )
    return high + 1 if given is None else allowed
