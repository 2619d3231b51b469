"""Send messages and take in the replies, one node at a time.

Flower's own `send_and_receive` pulls all replies at once: one that cannot be unpacked ends the run,
and who sent it is what its sender wrote. Here each reply is asked for by the message that it
answers, so that it is known whose it is, and a bad one spoils no other.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from flwr.app import Message
from flwr.serverapp import Grid

TRIES = 3  # to read one reply
GRACE = 10.0  # seconds for one look, before the next node gets its turn
RECONNECT = 30.0  # seconds for one call to reach the SuperLink
LATE = 600.0  # seconds after the deadline until a message is void; clocks may differ by as much
SHORTEST, LONGEST = 0.05, 1.0  # seconds between two looks at what has come

Answer = tuple[int, Message | str]  # a node, and its reply or why there is none


class Clock(NamedTuple):
    """Time, so that tests need not wait."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


REAL = Clock()


class Look:
    """One look for a reply, in a thread: a client that uploads half of it holds Flower up."""

    def __init__(self, grid: Grid, key: str) -> None:
        self.found: list[Message] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._pull, args=(grid, key), daemon=True)
        self._thread.start()

    def _pull(self, grid: Grid, key: str) -> None:
        try:
            self.found = list(grid.pull_messages([key]))
        except BaseException as error:  # told to the thread that waits
            self.error = error

    def over(self, wait: float) -> bool:
        """Whether it is over after so many seconds; raises what stops the whole run."""
        self._thread.join(wait)
        over = not self._thread.is_alive()
        if over and self.error is not None and not isinstance(self.error, Exception):
            raise self.error
        return over


def exchange(
    grid: Grid, messages: Sequence[Message], timeout: float, clock: Clock = REAL
) -> Iterator[Answer]:
    """Send, and give each reply as it comes, until all have come or the time is over.

    Messages do not outlive that by much: a node that comes back would work for nothing.
    """
    for message in messages:
        message.metadata.ttl = min(message.metadata.ttl, timeout + LATE)
    begun = clock.now()
    deadline = begun + timeout
    pending, refused = push(grid, messages)
    yield from refused
    held_up: dict[str, Look] = {}
    failures: dict[str, list[str]] = {}
    while pending:
        for key in list(pending):
            wait = 0.0 if key in held_up else GRACE
            look = held_up.pop(key, None) or Look(grid, key)
            if not look.over(wait):
                held_up[key] = look
            elif look.error is not None:  # unpacked from what a client has sent
                failures.setdefault(key, []).append(readable(look.error))
                if len(failures[key]) == TRIES:
                    yield pending.pop(key), unread(failures[key])
            elif look.found:
                node = pending.pop(key)
                yield from ((node, message) for message in look.found)
                continue
            if clock.now() >= deadline and (key in held_up or key in failures):
                break  # it may have taken long to fail
        left = deadline - clock.now()
        if left <= 0:
            break
        if pending:
            pause = (clock.now() - begun) / 10 * len(pending) / len(messages)
            clock.sleep(min(max(pause, SHORTEST), LONGEST, left))  # little for a few, or early
    for key, node in pending.items():  # Flower may give a reply once only, readable or not
        if key in failures:
            yield node, unread(failures[key])
        elif key in held_up:
            yield node, "did not send its reply to the end"


def unread(reasons: Sequence[str]) -> str:
    """Why a reply could not be read."""
    return f"could not be read: {reasons[-1]}"


def push(grid: Grid, messages: Sequence[Message]) -> tuple[dict[str, int], list[Answer]]:
    """Send: who is to answer which message, and to whom nothing could be sent."""
    nodes = [message.metadata.dst_node_id for message in messages]
    try:
        sent = list(grid.push_messages(messages)) if messages else []
    except Exception as error:  # the next round may fare better, and there is a limit to them
        return {}, [(node, f"nothing could be sent: {readable(error)}") for node in nodes]
    if len(sent) != len(messages):  # some grids leave out what they could not send
        own = [message.metadata.message_id for message in messages]
        sent = [key if key in sent else "" for key in own]
    pending = {key: node for key, node in zip(sent, nodes, strict=True) if key}
    reached = set(pending.values())
    return pending, [(node, "nothing could be sent") for node in nodes if node not in reached]


def limit_retries(grid: Grid) -> None:
    """Flower's own calls to a SuperLink that is gone are tried again for ever: let them end."""
    invoker = getattr(grid, "_retry_invoker", None)
    if invoker is not None and invoker.max_time is None:
        invoker.max_time = RECONNECT


def by_source(replies: Iterable[Message]) -> Iterator[Answer]:
    """Replies as Flower's own loop gives them: from whom, is what they say."""
    for message in replies:
        yield message.metadata.src_node_id, message


def readable(text: object, length: int = 200) -> str:
    """Somebody else's words, in one line that can do no harm in a log."""
    words = f"{type(text).__name__}: {text}" if isinstance(text, BaseException) else str(text)
    if len(words) > length:  # the end of a traceback tells most
        words = f"{words[: length // 3]} … {words[-length // 2 :]}"
    line = " ".join(words.split())
    return "".join(c if c.isprintable() else "?" for c in line)
