"""The lines of rounds.jsonl, and the copy of them from which a lost or edited file is restored."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedro.runs.errors import DamagedError, read_bytes
from fedro.runs.json_lines import LineFile, parse_json


class LinesMark(NamedTuple):
    """Where the lines of a checkpoint end in rounds.jsonl, and their hash.

    Attributes:
        size: The number of bytes.
        digest: The BLAKE2b hash of these bytes, in hexadecimal digits.
    """

    size: int
    digest: str


class RoundLines:
    """rounds.jsonl and its copy, in the process that writes them.

    Every line is appended to rounds.jsonl at once and to the copy when a checkpoint is saved. The
    checkpoint itself holds only a `LinesMark`. What is written for a checkpoint therefore does not
    grow with the number of rounds.
    """

    def __init__(self, path: Path, copy: Path) -> None:
        self.file, self.copy = LineFile(path), LineFile(copy)
        self._unsaved: list[bytes] = []  # the lines after those of the last checkpoint
        self._size, self._hash = 0, _new_hash()  # of the lines of the last checkpoint

    def append(self, line: bytes) -> None:
        """Add a line to rounds.jsonl."""
        self.file.append(line + b"\n")
        self._unsaved.append(line + b"\n")

    def save_before(self, round: int) -> LinesMark:
        """Put the lines before this round on the disk once more, for a checkpoint.

        Call `saved` when the checkpoint is written.
        """
        if self.copy.size > self._size:  # an earlier checkpoint could not be written
            self.copy.cut(self._size)
        if lines := b"".join(lines_before(self._unsaved, round)):
            self.copy.append(lines)
            self.copy.sync()
        digest = self._hash.copy()
        digest.update(lines)
        return LinesMark(self._size + len(lines), digest.hexdigest())

    def saved(self, mark: LinesMark) -> None:
        """Note that a checkpoint with this mark is on the disk."""
        while self._size < mark.size:
            line = self._unsaved.pop(0)
            self._hash.update(line)
            self._size += len(line)

    def find(self, mark: LinesMark) -> bytes:
        """Return the lines up to a mark, from rounds.jsonl or its copy.

        Raises:
            DamagedError: Neither file has them.
        """
        for path in (self.file.path, self.copy.path):
            lines = (read_bytes(path) or b"")[: mark.size]
            if _new_hash(lines).hexdigest() == mark.digest:
                return lines
        raise DamagedError(
            f"neither {self.file.path.name} nor its copy {self.copy.path} begins with the "
            f"{mark.size} bytes that were there when it was saved; put one of them back"
        )

    def restore(self, lines: bytes) -> None:
        """Make both files hold exactly the lines of a checkpoint."""
        self.file.restore(lines)
        self.copy.restore(lines)
        self._unsaved = []
        self._size, self._hash = len(lines), _new_hash(lines)


def lines_before(lines: Sequence[bytes], round: int) -> Sequence[bytes]:
    """Leave out the lines at the end that belong to this round or a later one.

    >>> lines_before([b'{"round": 0}', b'{"round": 1}', b'{"round": 2}'], round=1)
    [b'{"round": 0}']
    """
    end = len(lines)
    while end:
        number = parse_json(lines[end - 1], "the last line").get("round")
        if not isinstance(number, int) or number < round:
            break
        end -= 1
    return lines[:end]


def _new_hash(data: bytes = b"") -> "hashlib.blake2b":
    return hashlib.blake2b(data, digest_size=32)
