"""Sort the replies of invited nodes into usable, rejected and missing ones, with reasons."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ArrayRecord, Message
from torch import Tensor

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
        missing: The nodes without a reply, with the reason.
        rejected: The nodes whose reply failed a check, with the reason.
        uninvited: The number of replies from nodes that were not invited.
    """

    invited: Sequence[int]
    missing: dict[int, str] = field(default_factory=dict)
    rejected: dict[int, str] = field(default_factory=dict)
    uninvited: int = 0

    @property
    def usable(self) -> list[int]:
        """The rows (places among the invited) of the nodes whose reply can be used."""
        lost = self.missing.keys() | self.rejected.keys()
        return [row for row, node in enumerate(self.invited) if node not in lost]

    def reject(self, node: int, reason: str) -> None:
        """Reject the node's reply."""
        self.missing.pop(node, None)
        self.rejected[node] = reason


def receive(
    replies: Iterable[NodeReply], invited: Sequence[int], take: Callable[[int, Message], None]
) -> Received:
    """Call `take(row, message)` for each reply of an invited node. No reply can raise an error."""
    received, rows = Received(invited), {node: row for row, node in enumerate(invited)}
    seen: set[int] = set()
    for node, reply in replies:
        if node not in rows:
            received.uninvited += 1
        elif node in seen:  # the server cannot know which of the two is the node's
            received.reject(node, "answered twice")
        else:
            seen.add(node)
            _receive_one(received, node, rows[node], reply, take)
    received.missing |= {node: "did not answer" for node in invited if node not in seen}
    return received


def _receive_one(
    received: Received,
    node: int,
    row: int,
    reply: Message | str,
    take: Callable[[int, Message], None],
) -> None:
    try:
        if isinstance(reply, str):
            received.missing[node] = reply
        elif reply.has_error():
            error = reply.error
            received.missing[node] = f"error {error.code}: {one_line(error.reason)}"
        else:
            take(row, reply)
    except UnusableReply as reason:
        received.reject(node, one_line(str(reason)))
    except Exception as error:  # a client can send anything
        received.reject(node, f"unreadable: {one_line(error)}")


def receive_updates(
    replies: Iterable[NodeReply],
    invited: Sequence[int],
    updates: Tensor,
    model: Tensor,
    layout: ArrayLayout,
    key: str,
) -> tuple[Received, dict[int, Metrics], Ids]:
    """Write each reply's weights minus the model into its row of `updates`.

    Returns:
        The outcome of the invitation, the metrics of the usable rows, and the usable rows.
    """
    metrics: dict[int, Metrics] = {}

    def take(row: int, message: Message) -> None:
        layout.write(arrays_of(message, key), updates[row], minus=model)
        metrics[row] = metrics_of(message)

    received = receive(replies, invited, take)
    rows = np.array(received.usable, dtype=np.int64)
    for row, reason in screen(updates, rows).items():
        received.reject(invited[row], reason)
    usable = received.usable
    return received, {row: metrics[row] for row in usable}, np.array(usable, dtype=np.int64)


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
