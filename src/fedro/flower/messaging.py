"""Send messages to nodes and collect their replies until all have arrived or time is up.

Flower's own `send_and_receive` reads all replies in one call. A single reply that cannot be read
then ends the run, and one that is half sent holds up the others. Here the server collects each
reply as soon as it is complete, knows by the message that it answers which node sent it, and reads
one at a time.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from flwr.app import Message
from flwr.serverapp import Grid

from fedro.flower.internals import HttpReplies, is_deployment

MAX_READ_ATTEMPTS = 3  # for one reply
SECONDS_PAST_DEADLINE = 600.0  # until a message expires; clocks may differ by this much
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 1.0  # pause before all pending nodes are polled again

Reply = Callable[[], Message] | str  # a function that reads the reply, or why there is none
NodeReply = tuple[int, Reply]


class Clock(NamedTuple):
    """The time functions that the strategy uses; tests replace them so that they need not wait."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


SYSTEM_CLOCK = Clock()


class ReplyLimits(NamedTuple):
    """How large a reply may be."""

    max_bytes: int
    max_arrays: int


NO_ARRAYS = ReplyLimits(2**20, 0)


class Replies(Protocol):
    """The replies to some messages, wherever they are."""

    def sweep(self, message_ids: Sequence[str]) -> Iterator[tuple[str, Reply]]:
        """Yield the replies to these messages that are complete. Nothing waits."""

    def why_missing(self, message_id: str) -> str | None:
        """Why there is no reply to a message, if anything is known."""

    @property
    def failed(self) -> bool:
        """Whether the last sweep could not look at all replies."""


class LocalReplies:
    """The replies in a simulation, where the nodes are part of this program."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._errors: dict[str, list[str]] = {}

    def sweep(self, message_ids: Sequence[str]) -> Iterator[tuple[str, Reply]]:
        """Ask for each reply; give up one that Flower cannot unpack."""
        for key in message_ids:
            try:
                messages = list(self._grid.pull_messages([key]))
            except Exception as error:
                self._errors.setdefault(key, []).append(one_line(error))
                if len(self._errors[key]) == MAX_READ_ATTEMPTS:
                    yield key, f"could not be read: {self._errors[key][-1]}"
            else:
                yield from ((key, already_read(message)) for message in messages)

    @property
    def failed(self) -> bool:
        """Nothing keeps a simulation from looking."""
        return False

    def why_missing(self, message_id: str) -> str | None:
        """The last error, because Flower may deliver a reply only once."""
        errors = self._errors.get(message_id)
        return f"could not be read: {errors[-1]}" if errors else None


class RemoteReplies:
    """The replies of real nodes, which the SuperLink holds."""

    def __init__(self, http: HttpReplies) -> None:
        self._http = http
        self._trouble: str | None = None

    def sweep(self, message_ids: Sequence[str]) -> Iterator[tuple[str, Reply]]:
        """Download what is there. A SuperLink that is gone may be back at the next sweep."""
        try:
            for key, upload in self._http.sweep(message_ids):
                yield key, upload.read
            self._trouble = None
        except ConnectionError as error:
            self._trouble = one_line(str(error))

    @property
    def failed(self) -> bool:
        """Whether the SuperLink refused or was gone."""
        return self._trouble is not None

    def why_missing(self, message_id: str) -> str | None:
        """Whether the SuperLink was gone at the end, or the reply is not complete."""
        if self._trouble is not None:
            return f"the SuperLink could not be reached: {self._trouble}"
        return "did not finish sending its reply" if self._http.incomplete(message_id) else None


def send_and_collect(
    grid: Grid,
    messages: Sequence[Message],
    timeout: float,
    clock: Clock = SYSTEM_CLOCK,
    *,
    limits: ReplyLimits = NO_ARRAYS,
    enough: Callable[[float], bool] = lambda seconds: False,
) -> Iterator[NodeReply]:
    """Send the messages and yield each reply as it arrives, until all have arrived or time is up.

    Messages expire soon after the timeout, so that nodes that come back late do no useless work. A
    reply that is complete before the deadline always counts, because the last look is after it.

    Args:
        grid: Flower's connection to the nodes.
        messages: One message for each node.
        timeout: How many seconds to wait for replies.
        clock: The time functions to use.
        limits: How large a reply may be.
        enough: Called with the seconds that have passed; if it returns True, the wait is over.
    """
    for message in messages:
        message.metadata.ttl = min(message.metadata.ttl, timeout + SECONDS_PAST_DEADLINE)
    start = clock.now()
    pending, not_sent = push(grid, messages)
    yield from not_sent
    replies: Replies = LocalReplies(grid)
    if is_deployment(grid) and pending:
        replies = RemoteReplies(HttpReplies(grid, *limits))
    last_looks = 0
    while pending:
        last_looks += clock.now() >= start + timeout
        answered = set()
        for key, reply in replies.sweep(list(pending)):
            answered.add(key)
            yield pending[key], reply
        pending = {key: node for key, node in pending.items() if key not in answered}
        elapsed = clock.now() - start
        if enough(elapsed) or last_looks > replies.failed:  # look again if the last one failed
            break
        if pending:  # poll often at the beginning and when few replies are missing
            pause = elapsed / 10 * len(pending) / len(messages)
            pause = min(max(pause, MIN_POLL_SECONDS), MAX_POLL_SECONDS)
            clock.sleep(max(0.0, min(pause, timeout - elapsed)))
    for key, node in pending.items():
        reason = replies.why_missing(key)
        if reason is not None:
            yield node, reason


def push(grid: Grid, messages: Sequence[Message]) -> tuple[dict[str, int], list[NodeReply]]:
    """Send messages; returns the node of each message id, and the nodes that were not reached."""
    nodes = [message.metadata.dst_node_id for message in messages]
    try:
        sent = list(grid.push_messages(messages)) if messages else []
    except Exception as error:  # the next round may succeed; the number of void rounds is limited
        return {}, [(node, f"nothing could be sent: {one_line(error)}") for node in nodes]
    if len(sent) != len(messages):  # some grids leave out the messages that they could not send
        own = [message.metadata.message_id for message in messages]
        sent = [message_id if message_id in sent else "" for message_id in own]
    pending = {message_id: node for message_id, node in zip(sent, nodes, strict=True) if message_id}
    reached = set(pending.values())
    return pending, [(node, "nothing could be sent") for node in nodes if node not in reached]


def by_claimed_source(replies: Iterable[Message]) -> Iterator[NodeReply]:
    """Replies from Flower's own loop. Their sender is the one that they claim."""
    for message in replies:
        yield message.metadata.src_node_id, already_read(message)


def already_read(message: Message) -> Reply:
    """A reply that needs no reading any more."""
    return lambda: message


def one_line(text: object, max_length: int = 200) -> str:
    """Untrusted text as one line that is safe to log."""
    words = f"{type(text).__name__}: {text}" if isinstance(text, BaseException) else str(text)
    if len(words) > max_length:  # keep the end, which matters most in a traceback
        words = f"{words[: max_length // 3]} … {words[-max_length // 2 :]}"
    line = " ".join(words.split())
    return "".join(c if c.isprintable() else "?" for c in line)
