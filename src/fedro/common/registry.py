"""Tables of named things, and the small language that joins them: ``nnm | trimmed_mean``."""

import ast
import difflib
import importlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class UnknownNameError(KeyError, ValueError):
    """A name that is not in a table."""

    def __str__(self) -> str:
        return str(self.args[0])


class Table(Mapping[str, T]):
    """Name → entry; an unknown name raises and says which ones there are.

    >>> colors = Table("color")
    >>> colors["red"] = "#f00"
    >>> colors["read"]
    Traceback (most recent call last):
    fedro.common.registry.UnknownNameError: unknown color 'read': did you mean 'red'? Known: red
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownNameError(unknown(self.kind, name, self._entries)) from None

    def __setitem__(self, name: str, entry: T) -> None:
        if name in self._entries:
            raise ValueError(f"{self.kind} {name!r} is already taken: choose another name")
        self._entries[name] = entry

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def unknown(kind: str, name: object, known: Mapping[str, object] | list[str]) -> str:
    """The message for a name that is not in a table, with the nearest one that is."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown {kind} {name!r}: {hint}Known: {', '.join(known) or 'none'}"


def options_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """What can be set by name: the keyword-only parameters of a function."""
    parameters = inspect.signature(function).parameters
    return {k: p for k, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


def signature(function: Callable[..., Any]) -> str:
    """The options of a function with their defaults, for people: ``(tau=2.0)``, or nothing."""
    parts = [
        key if option.default is option.empty else f"{key}={option.default!r}"
        for key, option in options_of(function).items()
    ]
    return f"({', '.join(parts)})" if parts else ""


def check_options(
    name: str, function: Callable[..., Any], given: Mapping[str, Any], also: Sequence[str] = ()
) -> None:
    """Raise unless every option is known to the function, of its type, and none is missing."""
    options = options_of(function)
    for key, value in given.items():
        if key not in options:
            raise ValueError(unknown(f"option of {name}", key, [*options, *also]))
        _check_type(name, key, value, options[key].annotation)
    for key, parameter in options.items():
        if parameter.default is parameter.empty and key not in given:
            raise ValueError(f"{name} needs {key}=…, as in {name}({key}=1.0)")


def _check_type(name: str, key: str, value: object, annotation: object) -> None:
    kinds = str(annotation).removeprefix("<class '").removesuffix("'>").split(" | ")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name}({key}={value}): {key} must be finite")
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {
        "None": value is None,
        "bool": isinstance(value, bool),
        "int": number and isinstance(value, int),
        "float": number,
        "str": isinstance(value, str),
    }
    if not any(fits.get(kind, True) for kind in kinds):
        wanted = " | ".join(kinds)
        raise ValueError(f"{name}({key}={value!r}): {key} must be of type {wanted}")


def load(text: str) -> Any:
    """What ``"my_module:name"`` names; the module must be importable from where you are."""
    module, _, name = text.partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, but one that it needs is not
        raise ValueError(
            f"{text!r}: there is no module {module!r}; run from the folder that holds it, "
            "or put that folder on PYTHONPATH"
        ) from None
    if not hasattr(found, name):
        names = [key for key in vars(found) if key[0].isalpha()]
        raise ValueError(f"{text!r}: {unknown(f'name in {module}', name, names)}")
    return getattr(found, name)


def arguments_for(
    text: str,
    function: Callable[..., Any],
    options: Mapping[str, Any],
    offered: Mapping[str, Any],
) -> dict[str, Any]:
    """What a user's function is called with: its options, and of what is offered what it takes."""
    parameters = inspect.signature(function).parameters
    named = {
        key: parameter.default is parameter.empty
        for key, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for key in options:
        if key not in named and not anything:
            raise ValueError(unknown(f"option of {text}", key, list(named)))
    given = {key: value for key, value in offered.items() if key in named and value is not None}
    given |= options
    for key, needed in named.items():
        if needed and key not in given:
            raise ValueError(f"{text} needs {key}: write {text}({key}=…)")
    return given


class Stage(NamedTuple):
    """One step of a pipeline: ``centered_clipping(tau=10)`` is a name and its options."""

    name: str
    options: dict[str, Any]

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        return f"{self.name}({options})" if options else self.name


def parse_stage(kind: str, text: str) -> Stage:
    """Read one name with options: ``"dirichlet(alpha=0.5)"`` or ``"my_module:make(size=3)"``."""
    head, bracket, options = text.partition("(")
    module, colon, name = head.rpartition(":")
    rest = name + bracket + options
    stages = parse_stages(rest, kind)
    if len(stages) != 1:
        raise ValueError(f"{text!r}: give one {kind}, not {len(stages)} joined by '|'")
    return Stage(module.strip() + colon + stages[0].name, stages[0].options)


def parse_stages(text: str, kind: str = "rule") -> list[Stage]:
    """Read ``"arc | nnm | krum(original=True)"``; names, literals and nothing else are allowed."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _misread(text, kind) from None
    nodes: list[ast.expr] = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        nodes.append(tree.right)
        tree = tree.left
    nodes.append(tree)
    return [_stage(node, text, kind) for node in reversed(nodes)]


def _stage(node: ast.expr, text: str, kind: str) -> Stage:
    if isinstance(node, ast.Name):
        return Stage(node.id, {})
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)) or node.args:
        raise _misread(text, kind)
    options: dict[str, Any] = {}
    for keyword in node.keywords:
        try:
            value = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, MemoryError, RecursionError):
            raise _misread(text, kind) from None
        if keyword.arg is None or keyword.arg in options:
            raise _misread(text, kind)
        options[keyword.arg] = value
    return Stage(node.func.id, options)


EXAMPLES = {
    "rule": "'nnm | trimmed_mean' or 'centered_clipping(tau=10.0)'",
    "attack": "'alie' or 'sign_flip | takeover'",
}


def _misread(text: str, kind: str) -> ValueError:
    joined = "names joined by '|'" if kind in EXAMPLES else "a name"
    example = EXAMPLES.get(kind, "'name' or 'name(option=1.0)'")
    return ValueError(
        f"cannot read the {kind} {text!r}: write {joined}, with options by name, like {example}"
    )
