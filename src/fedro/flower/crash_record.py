"""What must survive a crash in the middle of a round: the draws, and whose reply was being read.

Both are files of their own in the run folder, so that neither a resumed run nor one that is rolled
back to an earlier checkpoint forgets them. Without a folder they are kept in memory only.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from fedro.common.atomic_files import opened, sync_folder, write_all

DRAWS_FILE, READING_FILE = "draws.jsonl", "reading.json"
STOPPED_WHILE_READING = "not read: the server stopped while it read this node's reply"


class DrawLog:
    """All draws of a run. The plan's probability is for a number of draws, not of rounds.

    A round that runs again after a crash usually invites the same nodes. This is the same draw, and
    counts once. If it invites other nodes, because others are online, it is a further draw.

    Args:
        path: The file. It is read if it exists.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._draws: set[tuple[int, str]] = set()
        if path is not None and path.exists():
            *lines, _ = path.read_bytes().split(b"\n")  # a crash may have cut the last line
            self._draws = {(line["round"], line["nodes"]) for line in map(json.loads, lines)}
            os.truncate(path, sum(len(line) + 1 for line in lines))

    def __len__(self) -> int:
        return len(self._draws)

    def is_new(self, round: int, nodes: Sequence[int]) -> bool:
        """Whether these nodes were not drawn in this round before."""
        return (round, hash_of(nodes)) not in self._draws

    def add(self, round: int, nodes: Sequence[int]) -> None:
        """Count a draw. It is on the disk before any node hears of it."""
        draw = (round, hash_of(nodes))
        if draw in self._draws:
            return
        if self._path is not None:
            line = json.dumps({"round": draw[0], "nodes": draw[1]}) + "\n"
            is_new = not self._path.exists()
            with opened(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
                write_all(file, line.encode())
                os.fsync(file)
            if is_new:
                sync_folder(self._path.parent)
        self._draws.add(draw)


def hash_of(nodes: Sequence[int]) -> str:
    """A short text that stands for a set of nodes."""
    return blake2b(repr(sorted(nodes)).encode(), digest_size=12).hexdigest()


class ReadingNote:
    """The node whose reply the server is reading, on the disk.

    If the reply kills the server, the resumed run does not read that node's reply in this round,
    and the ledger names the node.

    Args:
        path: The file. It is read if it exists.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._round = path, -1
        self._deadly: dict[int, list[int]] = {}  # the nodes by round
        if path is not None and path.exists():
            self._deadly = parse_note(path.read_bytes())

    @property
    def unread(self) -> Mapping[int, str]:
        """The nodes whose replies must not be read in this round, with the reason."""
        return dict.fromkeys(self._deadly.get(self._round, []), STOPPED_WHILE_READING)

    def begin_round(self, round: int) -> None:
        """Begin a round."""
        self._round = round

    @contextmanager
    def of(self, node: int) -> Iterator[None]:
        """Note, while the block runs, that it reads the reply of this node.

        The note survives the end of the process, but perhaps not a power cut.
        """
        before = self._deadly.get(self._round, [])
        self._write({**self._deadly, self._round: [*before, node]})
        try:
            yield
        finally:  # also if the run is interrupted: this is not the node's fault
            self._write(self._deadly)

    def forget_before(self, round: int) -> None:
        """Forget the notes on rounds that will not run again."""
        self._deadly = {r: nodes for r, nodes in self._deadly.items() if r >= round}
        self._write(self._deadly)

    def _write(self, nodes: Mapping[int, Sequence[int]]) -> None:
        if self._path is None:
            return
        if not nodes:
            self._path.unlink(missing_ok=True)
            return
        note = {str(round): [str(node) for node in named] for round, named in nodes.items()}
        with opened(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            write_all(file, json.dumps(note).encode())


def parse_note(data: bytes) -> dict[int, list[int]]:
    """The nodes by round, or none if the crash came while they were written."""
    try:
        note = json.loads(data)
        return {int(round): [int(node) for node in nodes] for round, nodes in note.items()}
    except (ValueError, AttributeError, TypeError):
        return {}
