"""What each node did over the rounds. It flags nodes; it never lowers b̂."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fedro.flower.replies import Received

MOST = 20  # different reasons that are told apart for a node: a liar's words cannot fill the disk


@dataclass
class Entry:
    """A node: its number in the record of rounds, and what became of its invitations."""

    number: int
    since: int  # the round in which it was first seen
    invited: int = 0
    used: int = 0
    missing: dict[str, int] = field(default_factory=dict)  # reason: times
    rejected: dict[str, int] = field(default_factory=dict)
    quarantined: int | None = None  # since this round
    evaluations: int = 0  # that it was asked for
    unevaluated: dict[str, int] = field(default_factory=dict)  # why there was none: times

    @property
    def refusals(self) -> int:
        """How often its reply was rejected."""
        return sum(self.rejected.values())


class Ledger:
    """All nodes that were ever online, by their ids."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}

    def meet(self, nodes: Iterable[int], round: int) -> None:
        """Give a number to each node that is new."""
        for node in nodes:
            if node not in self.entries:
                self.entries[node] = Entry(len(self.entries), round)

    def number(self, node: int) -> int:
        """Its number in the record."""
        return self.entries[node].number

    @property
    def quarantined(self) -> set[int]:
        """The nodes that are not invited any more."""
        return {node for node, entry in self.entries.items() if entry.quarantined is not None}

    def note(self, received: Received, round: int, quarantine: int | None) -> list[int]:
        """Write down a round; the nodes that go into quarantine after so many rejected replies.

        A node that is only missing does not: that happens to honest ones.
        """
        for node in received.invited:
            entry = self.entries[node]
            entry.invited += 1
            tally(entry.missing, received.missing.get(node))
            tally(entry.rejected, received.rejected.get(node))
            entry.used += node not in received.missing and node not in received.rejected
        if quarantine is None:
            return []
        new = [
            node
            for node in received.rejected
            if self.entries[node].refusals >= quarantine and self.entries[node].quarantined is None
        ]
        for node in new:
            self.entries[node].quarantined = round + 1
        return new

    def note_evaluation(self, received: Received) -> None:
        """Write down an evaluation; nobody goes into quarantine for it."""
        lost = received.missing | received.rejected
        for node in received.invited:
            self.entries[node].evaluations += 1
            tally(self.entries[node].unevaluated, lost.get(node))

    def as_dict(self) -> dict[str, Any]:
        """For JSON, by node ids as texts: they are too large for many readers of numbers."""
        return {str(node): asdict(entry) for node, entry in self.entries.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Ledger":
        """The ledger that was saved."""
        ledger = cls()
        ledger.entries = {int(node): Entry(**entry) for node, entry in values.items()}
        return ledger


def tally(counts: dict[str, int], reason: str | None) -> None:
    """Count a reason, if there is one; after so many different ones, the next are "other"."""
    if reason is not None:
        told = reason if reason in counts or len(counts) < MOST else "other"
        counts[told] = counts.get(told, 0) + 1
