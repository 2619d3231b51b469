"""Sort the replies of invited nodes into usable, rejected and missing ones, with reasons."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ArrayRecord, Message
from torch import Tensor

from fedro.flower.crash_record import ReadingNote
from fedro.flower.layout import ArrayLayout, UnusableReply
from fedro.flower.messaging import NodeReply, one_line
from fedro.server import Ids, screen

Metrics = dict[str, float]
EXAMPLES_KEY = "num-examples"  # Flower's own strategies use it as a weight


@dataclass
class Received:
    """The outcome of an invitation. A node whose reply is not used has exactly one reason.

    Attributes:
        invited: The ids of the invited nodes.
        taken: The nodes whose reply has arrived and passed all checks.
        missing: The nodes without a reply, with the reason.
        rejected: The nodes whose reply failed a check, with the reason.
        uninvited: The number of replies from nodes that were not invited.
        silence: The reason for the nodes of which nothing was heard.
    """

    invited: Sequence[int]
    taken: set[int] = field(default_factory=set)
    missing: dict[int, str] = field(default_factory=dict)
    rejected: dict[int, str] = field(default_factory=dict)
    uninvited: int = 0
    silence: str = "did not answer"

    @property
    def usable(self) -> list[int]:
        """The rows (places among the invited) of the nodes whose reply can be used."""
        return [row for row, node in enumerate(self.invited) if node in self.taken]

    def reject(self, node: int, reason: str) -> None:
        """Reject the node's reply."""
        self.taken.discard(node)
        self.missing.pop(node, None)
        self.rejected[node] = reason


def receive(
    replies: Iterable[NodeReply],
    received: Received,
    take: Callable[[int, Message], None],
    reading: ReadingNote | None = None,
) -> Received:
    """Call `take(row, message)` for each reply of an invited node. No reply can raise an error.

    Args:
        replies: The replies, in the order of their arrival.
        received: Where to record the outcome.
        take: Takes a reply, or raises UnusableReply.
        reading: Where to note whose reply is being read.
    """
    reading = reading or ReadingNote()
    rows = {node: row for row, node in enumerate(received.invited)}
    seen: set[int] = set()
    for node, reply in replies:
        if node not in rows:
            received.uninvited += 1
        elif node in seen:  # the server cannot know which of the two is the node's
            received.reject(node, "answered twice")
        elif isinstance(reply, str):
            received.missing[node] = reply
        elif node in reading.unread:
            received.reject(node, reading.unread[node])
        else:
            with reading.of(node):
                _read_one(received, node, rows[node], reply, take)
        seen.add(node)
    received.missing |= {node: received.silence for node in received.invited if node not in seen}
    return received


def _read_one(
    received: Received,
    node: int,
    row: int,
    read: Callable[[], Message],
    take: Callable[[int, Message], None],
) -> None:
    try:
        message = read()
        if message.has_error():
            error = message.error
            received.missing[node] = f"error {error.code}: {one_line(error.reason)}"
        else:
            take(row, message)
            received.taken.add(node)
    except UnusableReply as reason:
        received.reject(node, one_line(str(reason)))
    except MemoryError:  # perhaps the fault of another reply
        received.missing[node] = "could not be read: the server has too little memory"
    except Exception as error:  # a client can send anything
        received.reject(node, f"could not be read: {one_line(error)}")


def receive_updates(
    replies: Iterable[NodeReply],
    received: Received,
    updates: Tensor,
    model: Tensor,
    layout: ArrayLayout,
    key: str,
    reading: ReadingNote | None = None,
) -> tuple[dict[int, Metrics], Ids]:
    """Write each reply's weights minus the model into its row of `updates`.

    Returns:
        The metrics of the usable rows, and the usable rows.
    """
    metrics: dict[int, Metrics] = {}

    def take(row: int, message: Message) -> None:
        layout.write(arrays_of(message, key), updates[row], minus=model)
        if reasons := screen(updates, np.array([row])):
            raise UnusableReply(reasons[row])
        metrics[row] = metrics_of(message)

    usable = receive(replies, received, take, reading).usable
    return {row: metrics[row] for row in usable}, np.array(usable, dtype=np.int64)


def arrays_of(message: Message, key: str) -> ArrayRecord:
    """The weights in a reply."""
    records = message.content.array_records
    if key not in records:
        others = ", ".join(repr(one_line(name, 20)) for name in list(records)[:3])
        found = f", only under {others}" if others else ""
        raise UnusableReply(f"has no arrays under {key!r}{found}")
    return records[key]


def metrics_of(message: Message) -> Metrics:
    """The finite numbers in a reply, as its sender claims them.

    A name that is in two records counts once, so that nobody votes twice. The number of examples
    is left out, because it must not become a weight.
    """
    return {
        name: float(value)
        for record in message.content.metric_records.values()
        for name, value in record.items()
        if isinstance(value, (int, float)) and name != EXAMPLES_KEY and math.isfinite(value)
    }
