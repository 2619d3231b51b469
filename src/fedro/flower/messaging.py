"""Send messages to nodes and collect their replies, one node at a time.

Flower's own `send_and_receive` pulls all replies in one call. A single reply that cannot be
unpacked then ends the run, and the sender of a reply is whatever the sender wrote. Here the server
pulls each reply by the id of the message that it answers. So the server knows which node replied,
and a malformed reply affects no other.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from flwr.app import Message
from flwr.serverapp import Grid

MAX_READ_ATTEMPTS = 3  # for one reply
SECONDS_PER_PULL = 10.0  # then the next node gets its turn, and the pull continues in its thread
SECONDS_TO_RECONNECT = 30.0  # for one call to reach the SuperLink
SECONDS_PAST_DEADLINE = 600.0  # until a message expires; clocks may differ by this much
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 1.0  # pause before all pending nodes are polled again

NodeReply = tuple[int, Message | str]  # a node, and its reply or the reason why there is none


class Clock(NamedTuple):
    """The time functions that the strategy uses; tests replace them so that they need not wait."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


SYSTEM_CLOCK = Clock()


class Pull:
    """One attempt to pull a reply, in a thread, because a half-uploaded reply blocks Flower."""

    def __init__(self, grid: Grid, message_id: str) -> None:
        self.messages: list[Message] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(grid, message_id), daemon=True)
        self._thread.start()

    def _run(self, grid: Grid, message_id: str) -> None:
        try:
            self.messages = list(grid.pull_messages([message_id]))
        except BaseException as error:  # `finished` handles it in the waiting thread
            self.error = error

    def finished(self, wait: float) -> bool:
        """Wait up to `wait` seconds; raise what must stop the run, like KeyboardInterrupt."""
        self._thread.join(wait)
        finished = not self._thread.is_alive()
        if finished and self.error is not None and not isinstance(self.error, Exception):
            raise self.error
        return finished


def send_and_collect(
    grid: Grid, messages: Sequence[Message], timeout: float, clock: Clock = SYSTEM_CLOCK
) -> Iterator[NodeReply]:
    """Send the messages and yield each reply as it arrives, until all have arrived or time is up.

    Messages expire soon after the timeout, so that nodes that come back late do no useless work.
    """
    for message in messages:
        message.metadata.ttl = min(message.metadata.ttl, timeout + SECONDS_PAST_DEADLINE)
    start = clock.now()
    deadline = start + timeout
    pending, not_sent = push(grid, messages)
    yield from not_sent
    blocked: dict[str, Pull] = {}
    failures: dict[str, list[str]] = {}
    while pending:
        for message_id in list(pending):
            wait = 0.0 if message_id in blocked else SECONDS_PER_PULL
            pull = blocked.pop(message_id, None) or Pull(grid, message_id)
            if not pull.finished(wait):
                blocked[message_id] = pull
            elif pull.error is not None:  # Flower could not unpack what the client sent
                failures.setdefault(message_id, []).append(one_line(pull.error))
                if len(failures[message_id]) == MAX_READ_ATTEMPTS:
                    yield pending.pop(message_id), unreadable(failures[message_id])
            elif pull.messages:
                node = pending.pop(message_id)
                yield from ((node, message) for message in pull.messages)
                continue
            if clock.now() >= deadline and (message_id in blocked or message_id in failures):
                break  # this pull may have taken long
        remaining = deadline - clock.now()
        if remaining <= 0:
            break
        if pending:  # poll often at the beginning and when few replies are missing
            pause = (clock.now() - start) / 10 * len(pending) / len(messages)
            clock.sleep(min(max(pause, MIN_POLL_SECONDS), MAX_POLL_SECONDS, remaining))
    for message_id, node in pending.items():  # Flower may deliver a reply only once
        if message_id in failures:
            yield node, unreadable(failures[message_id])
        elif message_id in blocked:
            yield node, "did not finish sending its reply"


def unreadable(reasons: Sequence[str]) -> str:
    """The reason for a reply that Flower could not unpack."""
    return f"could not be read: {reasons[-1]}"


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


def limit_retries(grid: Grid) -> None:
    """Set a time limit for Flower's calls to a SuperLink that is gone; by default there is none."""
    invoker = getattr(grid, "_retry_invoker", None)
    if invoker is not None and invoker.max_time is None:
        invoker.max_time = SECONDS_TO_RECONNECT


def by_claimed_source(replies: Iterable[Message]) -> Iterator[NodeReply]:
    """Replies from Flower's own loop. Their sender is the one that they claim."""
    for message in replies:
        yield message.metadata.src_node_id, message


def one_line(text: object, max_length: int = 200) -> str:
    """Untrusted text as one line that is safe to log."""
    words = f"{type(text).__name__}: {text}" if isinstance(text, BaseException) else str(text)
    if len(words) > max_length:  # keep the end, which matters most in a traceback
        words = f"{words[: max_length // 3]} … {words[-max_length // 2 :]}"
    line = " ".join(words.split())
    return "".join(c if c.isprintable() else "?" for c in line)
