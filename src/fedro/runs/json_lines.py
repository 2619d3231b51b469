"""Strict JSON, and files with a line of it for each entry."""

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedro.common.atomic_files import opened, write_all, write_atomically
from fedro.runs.errors import RunFolderError, read_bytes


def to_json(values: Mapping[str, Any], *, indent: int | None = None) -> bytes:
    """Encode values as strict JSON in ASCII; NaN and infinities, which it lacks, become null.

    >>> to_json({"round": 3, "loss": float("nan")})
    b'{"round": 3, "loss": null}'
    """
    return json.dumps(as_plain(values, finite=True), allow_nan=False, indent=indent).encode()


def as_plain(value: Any, where: str = "", *, finite: bool) -> Any:
    """Check that JSON can hold a value; with `finite`, replace NaN and infinities by None."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return None if finite and not math.isfinite(value) else value
    if isinstance(value, (list, tuple)):
        return [as_plain(item, f"{where}[{i}]", finite=finite) for i, item in enumerate(value)]
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise TypeError(f"{where} is a {kind}: JSON has None, bool, int, float, str, list and dict")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{where}[{key!r}]: a key of JSON is a string")
    return {key: as_plain(item, f"{where}[{key!r}]", finite=finite) for key, item in value.items()}


def parse_json(data: bytes, name: object) -> dict[str, Any]:
    """Parse the JSON object in a file or line; an error says that `name` is damaged."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{name} is damaged: {error}. Put it back from a copy.") from None
    if not isinstance(value, dict):
        raise RunFolderError(f"{name} is damaged: no JSON object. Put it back from a copy.")
    return value


def parse_lines(path: Path) -> list[dict[str, Any]]:
    """Parse a file that another process may be writing: an incomplete last line is left out."""
    *lines, _ = (read_bytes(path) or b"").split(b"\n")
    return [parse_json(line, f"line {number} of {path}") for number, line in enumerate(lines, 1)]


class LineFile:
    """A file of lines in the process that writes it.

    The file only grows, until it is cut back. `size` is where the last complete line ends; a file
    of another size was changed by somebody else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0

    def append(self, lines: bytes) -> None:
        """Add lines; if they cannot be written completely, the file is cut back."""
        size = self.size
        with opened(self.path, os.O_WRONLY | os.O_APPEND) as file:
            self._check_size(file)
            try:
                write_all(file, lines)
                self.size = size + len(lines)
            except BaseException:
                self.size = size
                with suppress(OSError):
                    os.ftruncate(file, size)
                raise

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        with opened(self.path, os.O_RDONLY) as file:
            self._check_size(file)
            os.fsync(file)

    def cut(self, size: int) -> None:
        """Cut the file back to a size."""
        os.truncate(self.path, size)
        self.size = size

    def restore(self, lines: bytes) -> None:
        """Make the file hold exactly these lines."""
        now = read_bytes(self.path)
        if now is None or not now.startswith(lines):
            write_atomically(self.path, lines, durable=True, make_folder=False, fixed_name=True)
        elif now != lines:
            os.truncate(self.path, len(lines))
        self.size = len(lines)

    def _check_size(self, file: int) -> None:
        size = os.fstat(file).st_size
        if size != self.size:
            raise RunFolderError(
                f"{self.path} was changed while the run was going on: it has {size} bytes, the run "
                f"wrote {self.size}. Stop what changes it; --resume restores it and goes on."
            )
