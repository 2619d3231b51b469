"""Arrays as training wants them, or an error that says which file or client is wrong, and how."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from fedro.common.checks import count
from fedro.data.federation import Array

MOST_CLASSES = 1_000_000


class Form(NamedTuple):
    """What all clients' data must have in common."""

    shape: tuple[int, ...]  # of one input
    dtype: Any  # of inputs, once they are tidy
    target_shape: tuple[int, ...]
    target_dtype: Any

    def check_same(self, first: "Form", where: str) -> None:
        """Raise unless the form is that of the first client."""
        names = ("x of shape", "x of type", "y of shape", "y of type")
        for name, own, model in zip(names, self, first, strict=True):
            if own != model:
                raise ValueError(
                    f"{where}: {name} {own}, but the first client has {model}; make them equal"
                )


def form(x: tuple[tuple[int, ...], Any], y: tuple[tuple[int, ...], Any], where: str) -> Form:
    """The form of inputs and labels or targets of these (shape, type), once they are tidy."""
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
    return Form(
        x_shape[1:],
        x_type if x_type == np.uint8 else np.dtype(np.float32),
        y_shape[1:],
        np.dtype(np.float32 if y_type.kind == "f" else np.int64),
    )


def as_array(values: Any) -> Array:
    """An array or tensor, or what can be made one, as an array."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return np.asarray(values.float() if values.is_floating_point() else values)
    return np.asarray(values)


def converted(values: Array, dtype: Any, where: str) -> Array:
    """The values in the type of their form; floating ones must be finite."""
    with np.errstate(over="ignore"):
        tidy = values.astype(dtype, copy=False)
    if tidy.dtype.kind == "f" and not (finite := np.isfinite(tidy)).all():
        raise ValueError(
            f"{where} holds NaN, infinite or too large numbers, {int((~finite).sum())} in all; "
            "clean the data first"
        )
    return tidy


def classes(labels: Sequence[Array], given: int | None, name: str) -> int:
    """How many classes there are: as given, else the largest label + 1; 0 for targets."""
    if labels[0].dtype.kind == "f":
        if given is not None:
            raise ValueError(
                f"{name}: classes={given}, but y are floating numbers (targets of a regression); "
                "make labels whole numbers"
            )
        return 0
    full = [y for y in labels if len(y)]
    low, high = min(int(y.min()) for y in full), max(int(y.max()) for y in full)
    most = MOST_CLASSES if given is None else count("classes", given, 1, MOST_CLASSES)
    if low < 0 or high >= most:
        raise ValueError(
            f"{name}: label {low if low < 0 else high} is not from 0 to {most - 1}; "
            "number the classes from 0, without gaps"
        )
    return high + 1 if given is None else most
