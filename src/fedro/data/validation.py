"""Check and convert the arrays of clients; errors say which file or client is wrong, and how."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from torch import Tensor

from fedro.common.checks import count
from fedro.common.text import counted
from fedro.data.federation import Array

MAX_CLASSES = 1_000_000
MAX_MISSING_LABELS = 10  # that an error lists

Task = Literal["classify", "regress"]
Remedy = Callable[[str], str]  # an option such as "classes=6" → what the user writes to give it


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


def check_task(task: Task | None) -> None:
    """Raise unless the task is None or one of the two."""
    if task is not None and task not in get_args(Task):
        raise ValueError(
            f"task={task!r}: must be 'classify' (y are labels) or 'regress' (y are targets)"
        )


def array_format(
    x: tuple[tuple[int, ...], Any],
    y: tuple[tuple[int, ...], Any],
    where: str,
    task: Task | None = None,
) -> ArrayFormat:
    """Return the format of arrays of these (shape, type) after conversion, or raise.

    Without a task, floating y are targets, and all others are labels.
    """
    (x_shape, x_type), (y_shape, y_type) = x, y
    if x_type != np.uint8 and x_type.kind != "f":
        raise ValueError(f"{where}: x is of type {x_type}; need uint8 images or floating numbers")
    if y_type.kind not in "uibf":
        raise ValueError(
            f"{where}: y is of type {y_type}; need whole numbers (labels) or floats (targets)"
        )
    labels = y_type.kind != "f" if task is None else task == "classify"
    if labels and len(y_shape) != 1:
        raise ValueError(f"{where}: labels y have shape {y_shape}; need one for each example")
    if not x_shape or not y_shape or x_shape[0] != y_shape[0]:
        raise ValueError(
            f"{where}: x has shape {x_shape} and y {y_shape}; need one row of each for each example"
        )
    return ArrayFormat(
        x_shape[1:],
        x_type if x_type == np.uint8 else np.dtype(np.float32),
        y_shape[1:],
        np.dtype(np.int64 if labels else np.float32),
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


def convert_y(values: Array, dtype: Any, where: str) -> Array:
    """Convert labels or targets; floating numbers become labels only if they are whole."""
    if values.dtype.kind == "f" and dtype == np.int64:
        bad = ~(np.isfinite(values) & (np.trunc(values) == values) & (abs(values) <= MAX_CLASSES))
        if bad.any():
            raise ValueError(
                f"{where} holds {values[bad][0]:g}: with task='classify', y must be whole numbers "
                "from 0 on; for a regression give task='regress'"
            )
    return convert(values, dtype, where)


def may_be_labels(values: Array) -> bool:
    """Whether floating y could be labels that a reader of CSV files made floating: 0.0, 1.0, …"""
    one_each = values.ndim == 1 or (values.ndim == 2 and values.shape[1] == 1)
    return values.dtype.kind == "f" and one_each and bool((np.trunc(values) == values).all())


def check_task_clear(targets: Sequence[Array], task: Task | None, name: str, say: Remedy) -> None:
    """Raise if no task is given and all targets are whole numbers, so that they may be labels."""
    used = [y for y in targets if y.size]
    if task is None and used and all(may_be_labels(y) for y in used):
        classify, regress = say("task='classify'"), say("task='regress'")
        raise ValueError(
            f"{name}: y are floating but whole numbers, such as {used[0].flat[0]:.1f}, so they may "
            f"be labels or targets. If they are labels, write {classify}; if they are targets, "
            f"write {regress}"
        )


def count_classes(
    labels: Sequence[Array], given: int | None, name: str, say: Remedy | None = None
) -> int:
    """Return the number of classes: as given, else the largest label + 1; 0 for targets.

    Args:
        labels: All labels or targets of all clients.
        given: The number of classes that the user gave, if any.
        name: What the data is called in errors.
        say: How to give the number of classes. Without it, labels that nobody has are no error.
    """
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
    if given is not None:
        return allowed
    if say is not None:
        _check_no_gaps(used, high, name, say)
    return high + 1


def _check_no_gaps(labels: Sequence[Array], high: int, name: str, say: Remedy) -> None:
    """Raise if a label below the highest occurs nowhere, or if there is a single label."""
    if high == 0:
        raise ValueError(
            f"{name}: all labels are 0, and with one class every model is always right; if classes "
            f"without examples are meant, write {say('classes=2')}"
        )
    occurs = np.zeros(high + 1, dtype=bool)
    for y in labels:
        occurs[y] = True
    if occurs.all():
        return
    missing = np.flatnonzero(~occurs)
    listed = ", ".join(map(str, missing[:MAX_MISSING_LABELS].tolist()))
    more = len(missing) - MAX_MISSING_LABELS
    raise ValueError(
        f"{name}: labels go up to {high}, but no client has the "
        f"label{'s' * (len(missing) > 1)} {listed}"
        + (f" and {counted(more, 'other')}" if more > 0 else "")
        + f". Number the classes from 0 without gaps; or, if classes without examples are meant, "
        f"write {say(f'classes={high + 1}')}"
    )
