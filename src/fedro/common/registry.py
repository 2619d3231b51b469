"""Tables of named things, with errors that suggest the nearest name."""

import difflib
from collections.abc import Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class UnknownNameError(KeyError, ValueError):
    """A name that is not in a table."""

    def __str__(self) -> str:
        return str(self.args[0])


class Table(Mapping[str, T]):
    """A mapping from names to entries; an unknown name raises and lists the known ones.

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
    """Return the error message for an unknown name, with the nearest known one."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown {kind} {name!r}: {hint}Known: {', '.join(known) or 'none'}"
