"""rounds.jsonl: a file that only grows, line by line, until it is cut back to a checkpoint."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedro.runs.files import RunFolderError, content, opened, write_all, write_whole
from fedro.runs.strict import parse


class Lines:
    """The file as the process knows it that writes it: ``end`` is where the last line ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = 0

    def append(self, line: bytes) -> None:
        """Add a line; one that cannot be written whole is taken back."""
        end = self.end
        with opened(self.path, os.O_WRONLY | os.O_APPEND) as file:
            self._check(file)
            try:
                write_all(file, line + b"\n")
                self.end = end + len(line) + 1
            except BaseException:
                self.end = end
                with suppress(OSError):
                    os.ftruncate(file, end)
                raise

    def synced(self) -> bytes:
        """All lines, once they are safe on the disk."""
        with opened(self.path, os.O_RDONLY) as file:
            self._check(file)
            os.fsync(file)
        return self.path.read_bytes()

    def restore(self, lines: bytes) -> None:
        """Make the file hold these lines and no others."""
        now = content(self.path)
        if now is None or not now.startswith(lines):
            write_whole(self.path, lines)
        elif now != lines:
            os.truncate(self.path, len(lines))
        self.end = len(lines)

    def _check(self, file: int) -> None:
        size = os.fstat(file).st_size
        if size != self.end:
            raise RunFolderError(
                f"{self.path} was changed while the run was going on: it has {size} bytes, the run "
                f"wrote {self.end}. Stop what changes it; --resume restores it and goes on."
            )


def parse_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that may still be written: a last one without an end does not count."""
    *lines, _ = (content(path) or b"").split(b"\n")
    return [parse(line, f"line {number} of {path}") for number, line in enumerate(lines, 1)]


def before(lines: bytes, round: int) -> bytes:
    """The lines without those at the end that tell of this round or a later one."""
    while lines:
        start = lines.rfind(b"\n", 0, -1) + 1
        number = parse(lines[start:], "the last line").get("round")
        if not isinstance(number, int) or number < round:
            break
        lines = lines[:start]
    return lines
