"""What must survive a crash in the middle of a round: the draws, and whose reply was being read.

Both are files of their own in the run folder, so that neither a resumed run nor one that is rolled
back to an earlier checkpoint forgets them. Without a folder they are kept in memory only.
"""

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fedro.common.atomic_files import opened, write_all

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
            with opened(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
                write_all(file, line.encode())
                os.fsync(file)
        self._draws.add(draw)


def hash_of(nodes: Sequence[int]) -> str:
    """A short text that stands for a set of nodes."""
    return blake2b(repr(sorted(nodes)).encode(), digest_size=12).hexdigest()


class ReadingNote:
    """The node whose reply the server is reading, on the disk.

    If the reply kills the server, the resumed run does not read that node's reply in this round,
    and the ledger names the node. An honest node is named if the server was killed from outside.

    Args:
        path: The file. It is read if it exists.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._round, self._unread = -1, dict[int, str]()
        if path is not None and path.exists():
            note = parse_note(path.read_bytes())
            self._round = note.get("round", -1)
            nodes = [int(node) for node in note.get("nodes", [])]
            self._unread = dict.fromkeys(nodes, STOPPED_WHILE_READING)

    @property
    def unread(self) -> Mapping[int, str]:
        """The nodes whose replies must not be read in this round, with the reason."""
        return self._unread

    def begin_round(self, round: int) -> None:
        """Begin a round. The nodes that were noted in another round may be read."""
        if round != self._round:
            self._round, self._unread = round, {}

    def begin(self, node: int) -> None:
        """Note that this node's reply is read next. Survives the process, not a power cut."""
        if self._path is not None:
            nodes = [str(other) for other in (*self._unread, node)]
            with opened(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
                write_all(file, json.dumps({"round": self._round, "nodes": nodes}).encode())

    def clear(self) -> None:
        """Note that no reply is being read."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def parse_note(data: bytes) -> dict[str, Any]:
    """A note, or an empty one if the crash came while it was written."""
    try:
        note = json.loads(data)
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}
