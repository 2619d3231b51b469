"""Tables of named things, and the small language that joins them: ``nnm | trimmed_mean``."""

import ast
import difflib
from collections.abc import Iterator, Mapping
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
    fedro.registry.UnknownNameError: unknown color 'read': did you mean 'red'? Known: red
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


class Stage(NamedTuple):
    """One step of a pipeline: ``centered_clipping(tau=10)`` is a name and its options."""

    name: str
    options: dict[str, Any]


def parse_stages(text: str) -> list[Stage]:
    """Read ``"arc | nnm | krum(original=True)"``; names, literals and nothing else are allowed."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _misread(text) from None
    nodes: list[ast.expr] = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        nodes.append(tree.right)
        tree = tree.left
    nodes.append(tree)
    return [_stage(node, text) for node in reversed(nodes)]


def _stage(node: ast.expr, text: str) -> Stage:
    if isinstance(node, ast.Name):
        return Stage(node.id, {})
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)) or node.args:
        raise _misread(text)
    options: dict[str, Any] = {}
    for keyword in node.keywords:
        try:
            value = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, MemoryError, RecursionError):
            raise _misread(text) from None
        if keyword.arg is None or keyword.arg in options:
            raise _misread(text)
        options[keyword.arg] = value
    return Stage(node.func.id, options)


def _misread(text: str) -> ValueError:
    return ValueError(
        f"cannot read the rule {text!r}: write names joined by '|', with options by name, "
        "like 'nnm | trimmed_mean' or 'centered_clipping(tau=10.0)'"
    )
