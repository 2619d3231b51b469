"""All that fedro needs of Flower's private parts. No other module of fedro uses any of them.

The names below are not part of Flower's public API and may change with each of its versions. They
are the same in all versions that `SUPPORTED` names; ``make flower-versions`` tests both ends.

`HttpReplies` reads the replies of a deployment. Flower's own `pull_messages` downloads a reply of
any size, joins its parts as often as the sender says, and waits up to two hours for parts that are
not there. Here a reply is downloaded part by part as the parts arrive, its size is limited, and
nothing waits.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import TypeGuard

from flwr.app import Array, Message
from flwr.serverapp import Grid

from fedro.flower.layout import UnusableReply

SUPPORTED = ">=1.40,<1.43"
SECONDS_TO_RECONNECT = 30.0  # for one call to reach the SuperLink
PARALLEL_DOWNLOADS = 4  # of replies; so many are in memory at a time
ASK_AT_ONCE = 8  # for replies: if the answer is lost, so are these
MIN_PART_BYTES = 2**16  # an honest node sends parts of 5 MiB, and a few small ones for each array
MAX_DESCRIPTION_BYTES = 2**20  # of names, shapes and metrics, without the numbers of the arrays


class UnsupportedFlowerError(ImportError):
    """The installed version of Flower lacks something that fedro needs."""

    def __init__(self, missing: object) -> None:
        super().__init__(
            f"fedro does not work with Flower {version('flwr')} ({missing}): "
            f"pip install 'flwr{SUPPORTED}'"
        )


try:
    import httpx
    from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest
    from flwr.supercore.inflatable.inflatable_object import (
        get_object_body,
        get_object_head_values_from_object_content,
        iterate_object_tree,
    )
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
    from flwr.superlink.grid.http_grid import HttpGrid
except ImportError as error:
    raise UnsupportedFlowerError(error) from error


class Upload:
    """A reply that a node has announced, and the parts of it that have been downloaded.

    Args:
        root: The id of the part that holds the others.
        parts: The ids of all parts.
        max_bytes: How large all parts together may be, and also the arrays made from them.
        max_arrays: How many arrays the reply may have.
    """

    def __init__(self, root: str, parts: list[str], max_bytes: int, max_arrays: int) -> None:
        self.root, self.max_bytes = root, max_bytes
        self.waiting = list(dict.fromkeys(parts))
        self.contents: dict[str, bytes] = {}
        self.bytes = self.description_bytes = 0
        self.failure: str | None = None
        self.too_little_memory = False
        max_parts = 32 + 4 * max_arrays + max_bytes // MIN_PART_BYTES
        if len(self.waiting) > max_parts:
            self.reject(f"has {len(self.waiting)} parts, and at most {max_parts} are allowed")

    def reject(self, reason: str) -> None:
        """Forget what has arrived; the reply will not be read."""
        self.failure, self.waiting, self.contents = reason, [], {}

    def wait_for_last(self) -> None:
        """Forget what has arrived until the part that is missing is there."""
        missing = self.waiting.pop()
        self.waiting = [*self.contents, *self.waiting, missing]  # it is asked for first
        self.contents = {}
        self.bytes = self.description_bytes = 0

    def add(self, content: bytes) -> None:
        """Take the part that was next, or reject the reply if it is too large."""
        self.contents[self.waiting.pop()] = content
        self.bytes += len(content)
        if not content.startswith(b"ArrayChunk"):
            self.description_bytes += len(content)
        if self.bytes > self.max_bytes:
            self.reject(f"has more than {self.max_bytes:,} bytes, too many for this model")
        elif self.description_bytes > MAX_DESCRIPTION_BYTES:
            self.reject(f"describes its arrays in more than {MAX_DESCRIPTION_BYTES:,} bytes")

    def read(self) -> Message:
        """Put the parts together. Raises UnusableReply, or whatever Flower raises."""
        if self.too_little_memory:
            raise MemoryError
        if self.failure is None and inflated_bytes(self.contents) > self.max_bytes:
            self.reject(f"grows to more than {self.max_bytes:,} bytes when its arrays are joined")
        if self.failure is not None:
            raise UnusableReply(self.failure)
        contents, self.contents = self.contents, {}
        message = inflate_object_from_contents(self.root, contents)
        if not isinstance(message, Message):
            raise UnusableReply("is not a message")
        return message


def inflated_bytes(contents: Mapping[str, bytes]) -> int:
    """The bytes of all arrays in a reply. An array may name the same part many times."""
    total = 0
    for content in contents.values():
        kind, children, _ = get_object_head_values_from_object_content(content)
        if kind == Array.__qualname__:
            body = json.loads(get_object_body(content, Array))
            total += sum(len(contents[children[place]]) for place in body["arraychunk_ids"])
    return total


class HttpReplies:
    """The replies to messages that were sent through Flower's grid for deployments.

    Args:
        grid: The grid.
        max_bytes: How large a reply may be.
        max_arrays: How many arrays it may have.
    """

    def __init__(self, grid: HttpGrid, max_bytes: int, max_arrays: int) -> None:
        self._max_bytes, self._max_arrays = max_bytes, max_arrays
        self._uploads: dict[str, Upload] = {}
        self._error: httpx.HTTPError | None = None
        try:
            self._client, self._node = grid._runtime_client, grid.node
            self._run_id = grid.run.run_id
        except AttributeError as error:
            raise UnsupportedFlowerError(error) from error

    def sweep(self, message_ids: Sequence[str]) -> Iterator[tuple[str, Upload]]:
        """Download what has arrived of the replies to these messages; yield the complete ones.

        Raises:
            ConnectionError: The SuperLink could not be reached, or refused to answer, for some of
                them. All others have been yielded before.
        """
        self._error = None
        self._ask([key for key in message_ids if key not in self._uploads])
        announced = [key for key in message_ids if key in self._uploads]
        with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
            for batch in groups_of(PARALLEL_DOWNLOADS, announced):
                complete = pool.map(self._download, [self._uploads[key] for key in batch])
                for key, done in zip(batch, complete, strict=True):
                    if done:
                        yield key, self._uploads.pop(key)
        if self._error is not None:
            raise ConnectionError(f"{type(self._error).__name__}: {self._error}")

    def incomplete(self, message_id: str) -> bool:
        """Whether the node has begun to send its reply."""
        return message_id in self._uploads

    def _ask(self, message_ids: list[str]) -> None:
        """Ask which replies there are. The SuperLink announces each reply once."""
        for group in groups_of(ASK_AT_ONCE, message_ids):
            try:
                answer = self._client.PullMessages(PullAppMessagesRequest(message_ids=group))
            except httpx.HTTPError as error:
                self._error = error
                return
            replies = zip(answer.messages_list, answer.message_object_trees, strict=True)
            for message, tree in replies:
                answered, root = message.metadata.reply_to_message_id, message.metadata.message_id
                if answered in group:  # the SuperLink checks that the right node answered
                    parts = [part.object_id for part in iterate_object_tree(tree)]
                    upload = Upload(root, parts, self._max_bytes, self._max_arrays)
                    self._uploads[answered] = upload

    def _download(self, upload: Upload) -> bool:
        """Download a reply. Returns whether it can be read or rejected."""
        try:
            return self._download_all(upload)
        except httpx.HTTPError as error:
            self._error = error
            return False
        except MemoryError:
            upload.contents, upload.too_little_memory = {}, True
            return True

    def _download_all(self, upload: Upload) -> bool:
        while upload.waiting:
            request = PullObjectRequest(
                node=self._node, run_id=self._run_id, object_id=upload.waiting[-1]
            )
            part = self._client.PullObject(request)
            if not part.object_found:
                upload.reject("was not sent completely")
            elif not part.object_available:
                upload.wait_for_last()
                return False
            else:
                upload.add(part.object_content)
        self._client.ConfirmMessageReceived(  # the SuperLink deletes the reply
            ConfirmMessageReceivedRequest(
                node=self._node, run_id=self._run_id, message_object_id=upload.root
            )
        )
        return True


def groups_of(size: int, items: Sequence[str]) -> Iterator[Sequence[str]]:
    """The items in groups of this size; the last may be smaller."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def is_deployment(grid: Grid) -> TypeGuard[HttpGrid]:
    """Whether the nodes behind this grid are other machines."""
    return isinstance(grid, HttpGrid)


def limit_retries(grid: Grid) -> None:
    """Set a time limit for Flower's calls to a SuperLink that is gone; by default there is none."""
    if not is_deployment(grid):
        return
    invoker = getattr(grid, "_retry_invoker", None)
    if invoker is None or not hasattr(invoker, "max_time"):
        raise UnsupportedFlowerError("its grid has no _retry_invoker.max_time")
    if invoker.max_time is None:
        invoker.max_time = SECONDS_TO_RECONNECT
