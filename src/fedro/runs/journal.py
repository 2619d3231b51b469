"""The journal of a run: what must survive a crash although no checkpoint holds it yet."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedro.runs.errors import RunFolderError, read_bytes
from fedro.runs.json_lines import LineFile, parse_json, to_json


class Journal:
    """A file of notes, each of which is on the disk before the program goes on.

    A note belongs to the round under its key "round". A run that is killed between two checkpoints
    finds its notes on the rounds since the first of them.
    """

    def __init__(self, path: Path) -> None:
        self._file = LineFile(path)

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def note(self, entry: Mapping[str, Any]) -> None:
        """Add a note, and wait until it is on the disk."""
        round = entry.get("round")
        if not isinstance(round, int) or round < 0:
            raise ValueError(f"round={round!r}: a note needs the number of its round, from 0 on")
        if not self._file.size:
            self._file.restore(b"")  # creates the file; its name is on the disk, too
        self._file.append(to_json(entry) + b"\n")
        self._file.sync()

    def notes(self, since: int) -> list[dict[str, Any]]:
        """Return the notes on this round and later ones, oldest first."""
        return [note for _, note in self._intact() if note["round"] >= since]

    def recover(self) -> None:
        """Cut off a note that was written only in part."""
        if self.path.exists():
            self._file.restore(b"".join(line for line, _ in self._intact()))

    def forget_before(self, round: int) -> None:
        """Delete the notes on earlier rounds."""
        if self._file.size:
            lines = b"".join(line for line, note in self._intact() if note["round"] >= round)
            self._file.restore(lines)

    def _intact(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Yield the lines and what they hold, up to the first that is not complete."""
        for line in (read_bytes(self.path) or b"").splitlines(keepends=True):
            try:
                note = parse_json(line, self.path)
            except RunFolderError:
                return
            if not line.endswith(b"\n") or not isinstance(note.get("round"), int):
                return
            yield line, note
