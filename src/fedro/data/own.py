"""Your own data: clients' arrays in memory, or a function of yours that makes them."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedro.common.registry import arguments_for, load
from fedro.data import validation
from fedro.data.federation import Federation, Rows, Scaling

WANTED = (
    "a Federation, or a list with one entry for each client: "
    "(x_train, y_train, x_test, y_test) or (Examples, Examples)"
)


def from_clients(
    clients: Iterable[Any],
    *,
    name: str = "own",
    classes: int | None = None,
    shift: Scaling | None = None,
    scale: Scaling | None = None,
) -> Federation:
    """A federation of arrays or tensors: (x_train, y_train, x_test, y_test) for each client.

    A client can also be a pair of Examples (train, test). Whole-numbered y are labels, and
    ``classes`` is the largest label + 1 unless given; floating y are targets of a regression.
    """
    parts = [_client(entry, f"{name}, client {i}") for i, entry in enumerate(clients)]
    if not parts:
        raise ValueError(f"{name}: there are no clients; need {WANTED}")
    first = _form(parts[0][0], name)
    for i, pair in enumerate(parts):
        for part in pair:
            _form(part, name).check_same(first, f"{name}, client {i}")
    return Federation(
        name,
        parts,
        classes=validation.classes([part.y for pair in parts for part in pair], classes, name),
        shift=0.0 if shift is None else shift,
        scale=(255.0 if first.dtype == np.uint8 else 1.0) if scale is None else scale,
    )


def _client(entry: Any, where: str) -> tuple[Rows, Rows]:
    try:
        four = [part for pair in entry for part in pair] if len(entry) == 2 else list(entry)
        x_train, y_train, x_test, y_test = four
    except (TypeError, ValueError):
        raise ValueError(f"{where}: cannot read {type(entry).__name__}; need {WANTED}") from None
    train = _rows(x_train, y_train, f"{where} (train)")
    if not len(train):
        raise ValueError(f"{where}: no training samples; leave this client out")
    if x_test is None or not len(x_test):
        return train, Rows(train.x, train.y, np.arange(0))
    return train, _rows(x_test, y_test, f"{where} (test)")


def _rows(x: Any, y: Any, where: str) -> Rows:
    inputs, targets = validation.as_array(x), validation.as_array(y)
    form = validation.form((inputs.shape, inputs.dtype), (targets.shape, targets.dtype), where)
    return Rows(
        validation.converted(inputs, form.dtype, f"{where}: x"),
        validation.converted(targets, form.target_dtype, f"{where}: y"),
        np.arange(len(inputs)),
    )


def _form(rows: Rows, where: str) -> validation.Form:
    return validation.form((rows.x.shape, rows.x.dtype), (rows.y.shape, rows.y.dtype), where)


def call_own(text: str, options: Mapping[str, Any], clients: int | None, seed: int) -> Federation:
    """What the function ``"my_module:name"`` makes, with its options, clients and seed."""
    function = load(text)
    if not callable(function):
        raise ValueError(f"{text} is {type(function).__name__}, not a function that gives {WANTED}")
    made = function(**arguments_for(text, function, options, {"clients": clients, "seed": seed}))
    if isinstance(made, Federation):
        _check(made, text)
        return made
    if isinstance(made, (list, tuple)):
        return from_clients(made, name=text)
    raise ValueError(f"{text} gave {type(made).__name__}; need {WANTED}")


def _check(made: Federation, text: str) -> None:
    """Parts that are not of this package can be anything: look at them."""
    if not made.clients:
        raise ValueError(f"{text} gave a federation without clients")
    if not made.sizes.all():
        raise ValueError(f"{text}: client {made.sizes.argmin()} has no training samples")
    x, y = made.parts[0][0].arrays()
    form = validation.form((x.shape, x.dtype), (y.shape, y.dtype), text)
    if (x.dtype, y.dtype) != (form.dtype, form.target_dtype):
        raise ValueError(
            f"{text}: x of type {x.dtype} and y of type {y.dtype}; need uint8 or float32, "
            "and int64 (labels) or float32 (targets)"
        )
    validation.classes([y], made.classes or None, text)
    for client, pair in enumerate(made.parts):
        for part in pair:
            if part.shape != form.shape:
                raise ValueError(
                    f"{text}: client {client} has examples of shape {part.shape}, the first "
                    f"{form.shape}; make them equal"
                )
