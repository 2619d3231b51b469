"""Make a federation of the user's arrays, or of what a function of the user's returns."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from fedro.common.options import arguments_for
from fedro.common.stages import load
from fedro.common.user_code import UserCode
from fedro.data import validation
from fedro.data.federation import ExampleRows, Federation, Scaling, user_code_of

WANTED = (
    "a Federation, or a list with one entry for each client: "
    "(x_train, y_train, x_test, y_test) or (Examples, Examples)"
)


def from_clients(
    clients: Iterable[Any],
    *,
    name: str = "own",
    task: validation.Task | None = None,
    classes: int | None = None,
    shift: Scaling | None = None,
    scale: Scaling | None = None,
) -> Federation:
    """Make a federation of arrays or tensors that you already have.

    Args:
        clients: For each client ``(x_train, y_train, x_test, y_test)`` or a pair of `Examples`
            (train, test). Integers in y are labels, floating numbers are the targets of a
            regression. A client without test data has None or empty arrays for them.
        name: What the federation is called in tables and reports.
        task: ``"classify"`` or ``"regress"``, which decides whether y are labels or targets
            whatever their type. It is needed if y are floating but whole numbers, such as 0.0 and
            1.0 from a CSV file.
        classes: The number of classes; by default the largest label + 1. It is needed if no client
            has an example of some class below the largest label.
        shift: Subtracted from uint8 images before training; by default 0.
        scale: What uint8 images are divided by after that; by default 255.

    Returns:
        The federation.

    Raises:
        ValueError: There are no clients, a client has no training data, the arrays do not fit
            together, or y do not tell the task or the number of classes; the message names the
            client or what to give.

    Example:
        >>> x, y = np.zeros((8, 3), np.float32), np.arange(8) % 2
        >>> federation = from_clients([(x, y, x[:2], y[:2]), (x, y, None, None)])
        >>> federation.clients, federation.classes, federation.test_sizes.tolist()
        (2, 2, [2, 0])
    """
    return _from_clients(
        clients,
        name=name,
        task=task,
        classes=classes,
        shift=shift,
        scale=scale,
        say=lambda option: f"from_clients(…, {option})",
    )


def _from_clients(
    clients: Iterable[Any],
    *,
    name: str,
    say: validation.Remedy,
    task: validation.Task | None = None,
    classes: int | None = None,
    shift: Scaling | None = None,
    scale: Scaling | None = None,
) -> Federation:
    validation.check_task(task)
    splits = [_client_rows(entry, f"{name}, client {i}", task) for i, entry in enumerate(clients)]
    if not splits:
        raise ValueError(f"{name}: there are no clients; need {WANTED}")
    first = _format_of(splits[0][0], name)
    for i, pair in enumerate(splits):
        for part in pair:
            _format_of(part, name).check_same(first, f"{name}, client {i}")
    targets = [part.y for pair in splits for part in pair]
    validation.check_task_clear(targets, task, name, say)
    return Federation(
        name,
        splits,
        classes=validation.count_classes(targets, classes, name, say),
        shift=0.0 if shift is None else shift,
        scale=(255.0 if first.dtype == np.uint8 else 1.0) if scale is None else scale,
    )


def _client_rows(
    entry: Any, where: str, task: validation.Task | None
) -> tuple[ExampleRows, ExampleRows]:
    try:
        four = [part for pair in entry for part in pair] if len(entry) == 2 else list(entry)
        x_train, y_train, x_test, y_test = four
    except (TypeError, ValueError):
        raise ValueError(f"{where}: cannot read {type(entry).__name__}; need {WANTED}") from None
    train = _as_rows(x_train, y_train, f"{where} (train)", task)
    if not len(train):
        raise ValueError(f"{where}: no training samples; leave this client out")
    if x_test is None or not len(x_test):
        return train, ExampleRows(train.x, train.y, np.arange(0))
    return train, _as_rows(x_test, y_test, f"{where} (test)", task)


def _as_rows(x: Any, y: Any, where: str, task: validation.Task | None) -> ExampleRows:
    inputs, targets = validation.as_array(x), validation.as_array(y)
    format = validation.array_format(
        (inputs.shape, inputs.dtype), (targets.shape, targets.dtype), where, task
    )
    return ExampleRows(
        validation.convert(inputs, format.dtype, f"{where}: x"),
        validation.convert_y(targets, format.target_dtype, f"{where}: y"),
        np.arange(len(inputs)),
    )


def _format_of(rows: ExampleRows, where: str) -> validation.ArrayFormat:
    return validation.array_format(
        (rows.x.shape, rows.x.dtype), (rows.y.shape, rows.y.dtype), where
    )


def call_user_function(
    text: str, options: Mapping[str, Any], clients: int | None, seed: int
) -> Federation:
    """Call the function ``"my_module:name"`` with its options, the clients and the seed."""
    function = _load_function(text)
    arguments = arguments_for(text, function, options, {"clients": clients, "seed": seed})
    with (guard := UserCode(f"data function {text}", function)):
        result = function(**arguments)
    if isinstance(result, Federation):
        _check_user_federation(result, text)
        return result
    if isinstance(result, (list, tuple, Iterator)):
        return _from_clients(
            guard.iterate(result),
            name=text,
            say=lambda option: f"`return fedro.data.from_clients(clients, {option})` in {text}",
        )
    raise ValueError(f"{text} gave {type(result).__name__}; need {WANTED}")


def check_user_function(text: str, options: Mapping[str, Any]) -> None:
    """Raise unless ``"my_module:name"`` is a function that takes these options."""
    arguments_for(text, _load_function(text), options, {"clients": 1, "seed": 0})


def _load_function(text: str) -> Callable[..., Any]:
    function: object = load(text)
    if not callable(function):
        raise ValueError(f"{text} is {type(function).__name__}, not a function that gives {WANTED}")
    return function


def _check_user_federation(federation: Federation, text: str) -> None:
    """Check a federation that may hold classes of the user's own."""
    if not federation.clients:
        raise ValueError(f"{text} gave a federation without clients")
    if not federation.sizes.all():
        raise ValueError(f"{text}: client {federation.sizes.argmin()} has no training samples")
    first = federation.splits[0][0]
    with user_code_of(first):
        x, y = first.arrays()
    format = validation.array_format((x.shape, x.dtype), (y.shape, y.dtype), text)
    if (x.dtype, y.dtype) != (format.dtype, format.target_dtype):
        raise ValueError(
            f"{text}: x of type {x.dtype} and y of type {y.dtype}; need uint8 or float32, "
            "and int64 (labels) or float32 (targets)"
        )
    validation.count_classes([y], federation.classes or None, text)
    for client, pair in enumerate(federation.splits):
        for part in pair:
            with user_code_of(part):
                shape = part.shape
            if shape != format.shape:
                raise ValueError(
                    f"{text}: client {client} has examples of shape {shape}, the first "
                    f"{format.shape}; make them equal"
                )
