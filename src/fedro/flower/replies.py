"""Which replies can be used, which cannot and why, and which never came."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ArrayRecord, Message
from torch import Tensor

from fedro.flower.exchange import Answer, readable
from fedro.flower.layout import Layout
from fedro.flower.npy import Refused
from fedro.server import Ids, screen

Metrics = dict[str, float]
EXAMPLES = "num-examples"  # by which Flower's own strategies weigh


@dataclass
class Received:
    """What came of an invitation. A reply that is not used has exactly one reason."""

    invited: Sequence[int]  # node ids
    missing: dict[int, str] = field(default_factory=dict)
    rejected: dict[int, str] = field(default_factory=dict)
    uninvited: int = 0

    @property
    def usable(self) -> list[int]:
        """The rows of those whose reply can be used."""
        lost = self.missing.keys() | self.rejected.keys()
        return [row for row, node in enumerate(self.invited) if node not in lost]

    def reject(self, node: int, reason: str) -> None:
        """Do without this node's reply."""
        self.missing.pop(node, None)
        self.rejected[node] = reason


def receive(
    answers: Iterable[Answer], invited: Sequence[int], take: Callable[[int, Message], None]
) -> Received:
    """Let `take(row, message)` have each reply of an invited node; none of them can stop this."""
    found, rows, seen = Received(invited), {node: i for i, node in enumerate(invited)}, set()
    for node, answer in answers:
        if node not in rows:
            found.uninvited += 1
        elif node in seen:  # the server cannot know which of them is the node's
            found.reject(node, "answered twice")
        else:
            seen.add(node)
            _one(found, node, rows[node], answer, take)
    found.missing |= {node: "did not answer" for node in invited if node not in seen}
    return found


def _one(
    found: Received,
    node: int,
    row: int,
    answer: Message | str,
    take: Callable[[int, Message], None],
) -> None:
    try:
        if isinstance(answer, str):
            found.missing[node] = answer
        elif answer.has_error():
            error = answer.error
            found.missing[node] = f"error {error.code}: {readable(error.reason)}"
        else:
            take(row, answer)
    except Refused as reason:
        found.reject(node, readable(str(reason)))
    except Exception as error:  # whatever a client has thought of
        found.reject(node, f"unreadable: {readable(error)}")


def receive_updates(
    answers: Iterable[Answer],
    invited: Sequence[int],
    updates: Tensor,
    model: Tensor,
    layout: Layout,
    key: str,
) -> tuple[Received, dict[int, Metrics], Ids]:
    """Write each reply's weights minus the model into its row; the metrics, and the usable rows."""
    metrics: dict[int, Metrics] = {}

    def take(row: int, message: Message) -> None:
        layout.write(arrays_of(message, key), updates[row], minus=model)
        metrics[row] = metrics_of(message)

    found = receive(answers, invited, take)
    rows = np.array(found.usable, dtype=np.int64)
    for row, reason in screen(updates, rows).items():
        found.reject(invited[row], reason)
    usable = found.usable
    return found, {row: metrics[row] for row in usable}, np.array(usable, dtype=np.int64)


def arrays_of(message: Message, key: str) -> ArrayRecord:
    """The weights in a reply."""
    records = message.content.array_records
    if key not in records:
        others = ", ".join(repr(readable(name, 20)) for name in list(records)[:3])
        raise Refused(f"has no arrays under {key!r}" + (f", only under {others}" if others else ""))
    return records[key]


def metrics_of(message: Message) -> Metrics:
    """The single numbers in a reply, claimed by its sender; how many examples it has is no weight.

    A name in two records counts once, so that nobody votes twice.
    """
    return {
        name: float(value)
        for record in message.content.metric_records.values()
        for name, value in record.items()
        if isinstance(value, (int, float)) and name != EXAMPLES and math.isfinite(value)
    }
