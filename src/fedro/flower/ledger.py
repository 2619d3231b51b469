"""A record of what each node did over the rounds. It can exclude nodes; it never lowers b̂."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fedro.flower.replies import Received
from fedro.server import Round

MAX_REASONS_PER_NODE = 20  # reasons may come from the node; they must not fill the disk


@dataclass
class NodeRecord:
    """What one node did.

    Attributes:
        number: The number that stands for the node in rounds.jsonl.
        since: The first round in which the node was online.
        invited: How often the node was invited to train.
        used: How many of its updates were used.
        missing: How often its reply was missing, by reason.
        rejected: How often its reply was rejected, by reason.
        excluded: How often its update was left out because of the evidence, by reason.
        suspect_since: The round since which the node is suspect, counted from 0, or None.
        quarantined: The round from which on the node is not invited any more, or None.
        evaluations: How often the node was invited to evaluate.
        unevaluated: How often such an evaluation could not be used, by reason.
    """

    number: int
    since: int
    invited: int = 0
    used: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    excluded: dict[str, int] = field(default_factory=dict)
    suspect_since: int | None = None
    quarantined: int | None = None
    evaluations: int = 0
    unevaluated: dict[str, int] = field(default_factory=dict)

    @property
    def rejections(self) -> int:
        """How often its reply was rejected."""
        return sum(self.rejected.values())


class Ledger:
    """The records of all nodes that were ever online, by node id."""

    def __init__(self) -> None:
        self.nodes: dict[int, NodeRecord] = {}

    def add_new(self, nodes: Iterable[int], round: int) -> None:
        """Start a record for each node that has none."""
        for node in nodes:
            if node not in self.nodes:
                self.nodes[node] = NodeRecord(len(self.nodes), round)

    def number(self, node: int) -> int:
        """The number that stands for the node in rounds.jsonl."""
        return self.nodes[node].number

    @property
    def quarantined(self) -> set[int]:
        """The nodes that are not invited any more."""
        return {node for node, record in self.nodes.items() if record.quarantined is not None}

    def record_round(self, received: Received, round: int, quarantine: int | None) -> list[int]:
        """Record a round of training; returns the nodes that go into quarantine after it.

        Only rejected replies count, because honest nodes can be missing too.
        """
        for node in received.invited:
            record = self.nodes[node]
            record.invited += 1
            count_reason(record.missing, received.missing.get(node))
            count_reason(record.rejected, received.rejected.get(node))
            record.used += node not in received.missing and node not in received.rejected
        if quarantine is None:
            return []
        new = [
            node
            for node in received.rejected
            if self.nodes[node].rejections >= quarantine and self.nodes[node].quarantined is None
        ]
        for node in new:
            self.nodes[node].quarantined = round + 1
        return new

    def node(self, number: int) -> int:
        """The id of the node that has this number in rounds.jsonl."""
        return next(node for node, record in self.nodes.items() if record.number == number)

    def record_evidence(self, round_: Round) -> tuple[list[int], list[int]]:
        """Record whose updates were left out, and who is suspect after this round.

        Returns:
            The nodes that are new suspects, and those that are not suspect any more. A void round
            changes nothing.
        """
        nodes = {record.number: node for node, record in self.nodes.items()}
        for number, reason in round_.excluded.items():
            record = self.nodes[nodes[number]]
            record.used -= 1
            count_reason(record.excluded, reason)
        if round_.evidence is None:
            return [], []
        before = {node for node, record in self.nodes.items() if record.suspect_since is not None}
        now = {nodes[number] for number in round_.suspects}
        for node in now - before:
            self.nodes[node].suspect_since = round_.round
        for node in before - now:
            self.nodes[node].suspect_since = None
        return sorted(now - before, key=self.number), sorted(before - now, key=self.number)

    def record_evaluation(self, received: Received) -> None:
        """Record an evaluation. It never puts a node into quarantine."""
        failures = received.missing | received.rejected
        for node in received.invited:
            self.nodes[node].evaluations += 1
            count_reason(self.nodes[node].unevaluated, failures.get(node))

    def as_dict(self) -> dict[str, Any]:
        """The ledger for JSON. Node ids become text, because many readers round large numbers."""
        return {str(node): asdict(record) for node, record in self.nodes.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Ledger":
        """The ledger that `as_dict` saved."""
        ledger = cls()
        ledger.nodes = {int(node): NodeRecord(**record) for node, record in values.items()}
        return ledger


def count_reason(counts: dict[str, int], reason: str | None) -> None:
    """Count a reason, if there is one. Beyond the limit, new reasons count as "other"."""
    if reason is not None:
        known = reason in counts or len(counts) < MAX_REASONS_PER_NODE
        label = reason if known else "other"
        counts[label] = counts.get(label, 0) + 1
