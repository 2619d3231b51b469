"""Flower's grid for deployment: replies that were packed by hand to do harm, and slow ones."""

import ast
import importlib.metadata
import json
import tomllib
import tracemalloc
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse, PushAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.run import Run
from flwr.superlink.grid.http_grid import HttpGrid

import fedro.flower
from fake_flower import FIRST, FakeGrid, Time, answer, honest, model, weights
from fedro.flower.internals import (
    SECONDS_TO_RECONNECT,
    SUPPORTED,
    HttpReplies,
    UnsupportedFlowerError,
    limit_retries,
)
from fedro.flower.layout import ArrayLayout
from fedro.flower.messaging import ReplyLimits, send_and_collect
from fedro.flower.replies import Received, receive_updates

NODES = [FIRST + i for i in range(3)]


def same(content):
    return content


class Link:
    """A SuperLink that gives, for each message, the objects that a client has uploaded.

    Of the replies in `unfinished`, by their order, a part is still missing; of `lost` it is gone.
    """

    def __init__(self):
        self.uploads, self.objects, self.owners = {}, {}, {}
        self.unfinished, self.lost, self.downloads, self.confirmed = set(), None, 0, 0

    def answer(self, message, reply, spoil=same, array=None, spoil_array=same):
        """Take a reply: its envelope is checked, what is in the objects is not."""
        reply.metadata.__dict__["_message_id"] = reply.object_id
        root = reply.object_id
        self.owners[root] = len(self.uploads)
        for key, item in get_all_nested_objects(reply).items():
            content = item.deflate()
            if key == array:
                content = spoil_array(content)
            self.objects[key] = spoil(content) if key == root else content
        envelope = message_to_proto(remove_content_from_message(reply))
        envelope.metadata.reply_to_message_id = message.metadata.message_id
        envelope.metadata.src_node_id = message.metadata.dst_node_id
        self.uploads[message.metadata.message_id] = (envelope, get_object_tree(reply))

    def PushMessages(self, request):  # noqa: N802
        ids = [message.metadata.message_id for message in request.messages_list]
        return PushAppMessagesResponse(message_ids=ids)

    def PushObject(self, request):  # noqa: N802
        raise AssertionError("no object was asked for")

    def PullMessages(self, request):  # noqa: N802
        found = [self.uploads[key] for key in request.message_ids if key in self.uploads]
        return PullAppMessagesResponse(
            messages_list=[envelope for envelope, _ in found],
            message_object_trees=[tree for _, tree in found],
        )

    def PullObject(self, request):  # noqa: N802
        self.downloads += 1
        owner = self.owners.get(request.object_id)
        if owner is not None and owner == self.lost:
            return PullObjectResponse(object_found=False, object_available=False)
        if owner in self.unfinished:
            return PullObjectResponse(object_found=True, object_available=False)
        content = self.objects[request.object_id]
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request):  # noqa: N802
        self.confirmed += 1


def good(link, message):
    link.answer(message, answer(message, {n: v + 1 for n, v in weights(message).items()}))


def impostor(link, message):
    """Says that it is another node, and that it answers that one's message."""
    reply = honest(50.0)(message)
    reply.metadata.__dict__["_src_node_id"] = FIRST + 1
    link.answer(message, reply)


def cut(link, message):
    link.answer(message, honest(1.0)(message), lambda content: content[:40])


def strange(link, message):
    link.answer(message, honest(1.0)(message), lambda content: b"hello")


def records(link, message):
    """An array record in the place of the message."""
    link.answer(message, honest(1.0)(message), lambda _: model().deflate())


def metrics(link, message):
    """A complete record in the place of the message."""
    link.answer(message, honest(1.0)(message), lambda _: MetricRecord({"a": 1.0}).deflate())


def repeating(times, chunk=2**20):
    """An act that names one chunk many times: a small reply that Flower makes a large one of."""

    def act(link, message):
        reply = answer(message, {"layer.weight": np.zeros(chunk, np.uint8)})
        array = reply.content["arrays"]["layer.weight"].object_id

        def spoil(content):
            head, body = content.split(b"\x00", 1)
            kind, children, _ = head.decode().split(" ")
            body = json.dumps({**json.loads(body), "arraychunk_ids": [0] * times}).encode()
            return f"{kind} {children} {len(body)}".encode() + b"\x00" + body

        link.answer(message, reply, array=array, spoil_array=spoil)

    return act


def many_arrays(count):
    """An act that sends many small arrays."""

    def act(link, message):
        link.answer(message, answer(message, {f"a{i}": np.full(1, i) for i in range(count)}))

    return act


def large(megabytes):
    """An act that sends many different chunks."""

    def act(link, message):
        data = np.frombuffer(np.random.default_rng(0).bytes(megabytes * 2**20), np.uint8)
        link.answer(message, answer(message, {"layer.weight": data}))

    return act


def wordy(link, message):
    """Sends no large array, but a metric with a very long name."""
    link.answer(message, answer(message, weights(message), {"m" * 1_050_000: 1.0}))


class Answered(HttpGrid):
    """Nodes that have answered as soon as the messages are sent."""

    def __init__(self, *acts):
        super().__init__(token="none")
        self._client, self.acts = Link(), acts
        self.set_run(Run.create_empty(run_id=1))

    def push_messages(self, messages):
        ids = super().push_messages(messages)
        for message, act in zip(messages, self.acts, strict=True):
            act(self._client, message)
        return ids


def invitations(nodes=NODES):
    record = RecordDict({"arrays": model(), "config": ConfigRecord({"server-round": 1})})
    return [Message(record, node, "train") for node in nodes]


def collected(grid, nodes=NODES, timeout=5.0, time=None):
    """The outcome of a round, and the updates."""
    layout, received = ArrayLayout(model()), Received(nodes)
    updates, start = torch.zeros(len(nodes), layout.width), layout.vector(model())
    limits = ReplyLimits(layout.max_reply_bytes, len(layout.names))
    clock = (time or Time()).clock
    replies = send_and_collect(grid, invitations(nodes), timeout, clock, limits=limits)
    receive_updates(replies, received, updates, start, layout, "arrays")
    return received, updates


@pytest.mark.parametrize("bad", [impostor, cut, strange, records, metrics])
def test_what_a_client_packs_spoils_no_other_reply(bad):
    received, updates = collected(Answered(bad, good, good))
    assert (updates[1:] == 1).all(), received
    if bad is impostor:
        assert received.usable == [0, 1, 2]
        assert updates[0, 0] == 50.0
    else:
        assert received.usable == [1, 2]
        reason = "is not a message" if bad is metrics else "could not be read"
        assert reason in received.rejected[FIRST]


@pytest.mark.parametrize("bad", [cut, strange, records])
def test_flowers_own_exchange_would_end_the_run(bad):
    with pytest.raises((ValueError, AttributeError, IndexError, KeyError)):
        Answered(bad, good, good).send_and_receive(invitations(), timeout=5.0)


def test_flowers_own_exchange_believes_who_it_was():
    replies = Answered(impostor, good, good).send_and_receive(invitations(), timeout=5.0)
    assert sorted(reply.metadata.src_node_id - FIRST for reply in replies) == [1, 1, 2]


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (repeating(600), "grows to more than"),
        (repeating(0), "could not be read"),
        (many_arrays(10_000), "parts, and at most"),
        (many_arrays(20), "holds 20 arrays that the model does not have"),
        (large(40), "has more than"),
        (wordy, "describes its arrays in more than"),
    ],
)
def test_a_reply_that_would_fill_the_memory_is_rejected(act, reason):
    grid = Answered(act, good, good)
    grid.push_messages(invitations())  # what the node does takes memory too, but not the server's
    uploads, grid._client.uploads = grid._client.uploads, {}
    grid.acts = [lambda link, message: None] * 3

    def announce(request, pull=grid._client.PullMessages):
        ids, grid._client.uploads = list(request.message_ids), {}
        for key, (envelope, tree) in zip(ids, uploads.values(), strict=True):
            envelope.metadata.reply_to_message_id = key
            grid._client.uploads[key] = (envelope, tree)
        return pull(request)

    grid._client.PullMessages = announce
    tracemalloc.start()
    try:
        received, updates = collected(grid)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reason in received.rejected[FIRST]
    assert received.usable == [1, 2]
    assert (updates[1:] == 1).all()
    assert peak < 20 * 2**20, "more than a few times what a reply may have"
    assert grid._client.confirmed == 3  # the SuperLink may delete the bad reply too


def test_flower_itself_puts_such_a_reply_together():
    """Or there is nothing to guard against any more."""
    replies = Answered(repeating(600), good, good).send_and_receive(invitations(), timeout=5.0)
    sizes = [len(reply.content["arrays"]["layer.weight"].data) for reply in replies]
    assert max(sizes) > 600 * 2**20


def test_few_parts_of_a_hostile_reply_are_downloaded():
    grid = Answered(many_arrays(10_000), good, good)
    collected(grid)
    assert grid._client.downloads < 100


class Slow(Answered):
    """All nodes have announced their replies, but some have not finished sending them."""

    def __init__(self, slow, nodes):
        super().__init__(*([good] * nodes))
        self._client.unfinished = slow


def test_nodes_that_never_finish_hold_up_nobody():
    nodes, time = [FIRST + i for i in range(20)], Time()
    received, updates = collected(Slow({0, 1, 2, 3}, 20), nodes, 25.0, time)
    assert received.usable == list(range(4, 20))
    assert (updates[4:] == 1).all()
    assert received.missing == dict.fromkeys(nodes[:4], "did not finish sending its reply")
    assert time.time == 25.0


def test_replies_that_are_complete_at_the_deadline_count_although_the_server_was_busy():
    nodes, time = [FIRST + i for i in range(12)], Time()
    grid = Slow(set(range(12)), 12)
    pull = grid._client.PullObject

    def pull_slowly(request):
        time.time += 4.0  # the SuperLink is slow
        if time.time > 20.0:  # shortly before the deadline all uploads end
            grid._client.unfinished = set()
        return pull(request)

    grid._client.PullObject = pull_slowly
    received, _ = collected(grid, nodes, 25.0, time)
    assert received.usable == list(range(12))


def test_replies_that_lack_a_part_take_no_memory():
    """Sixty nodes send all but one part of a reply, and the server keeps none of it."""
    nodes, missing = [FIRST + i for i in range(60)], []
    grid = Answered(*([good] * 60))

    def lacking(request, pull=grid._client.PullObject):
        owner = grid._client.owners.get(request.object_id)
        if owner is None and not missing:
            missing.append(request.object_id)  # a part that all replies share
        if request.object_id in missing:
            return PullObjectResponse(object_found=True, object_available=False)
        return pull(request)

    grid._client.PullObject = lacking
    replies = HttpReplies(grid, 10**6, 2)
    ids = grid.push_messages(invitations(nodes))
    assert list(replies.sweep(ids)) == []
    assert all(not replies._uploads[key].contents for key in ids)
    downloads = grid._client.downloads
    assert list(replies.sweep(ids)) == []
    assert grid._client.downloads == downloads  # only the missing part was asked for
    missing[:] = ["none"]
    assert len(list(replies.sweep(ids))) == 60


def test_one_failed_call_does_not_lose_the_other_replies():
    grid, time = Answered(*([good] * 9)), Time()
    nodes = [FIRST + i for i in range(9)]
    request = httpx.Request("POST", "https://127.0.0.1")
    pull, failures = grid._client.PullObject, []

    def locked(asked):
        if grid._client.owners.get(asked.object_id) == 0 and len(failures) < 2:
            failures.append(time.time)
            raise httpx.HTTPStatusError(
                "locked", request=request, response=httpx.Response(500, request=request)
            )
        return pull(asked)

    grid._client.PullObject = locked
    received, _ = collected(grid, nodes, 0.01, time)
    assert received.usable == list(range(9))  # the last look was repeated for the first
    assert len(failures) == 2


def test_a_lost_answer_loses_few_replies():
    """The SuperLink announces each reply once, also if its answer never arrives."""
    nodes = [FIRST + i for i in range(30)]
    grid, lost = Answered(*([good] * 30)), []
    pull = grid._client.PullMessages

    def announced_once(request):
        answer = pull(request)
        for key in request.message_ids:
            grid._client.uploads.pop(key, None)
        if not lost:
            lost.extend(request.message_ids)
            raise httpx.ReadTimeout("lost")
        return answer

    grid._client.PullMessages = announced_once
    received, _ = collected(grid, nodes, 5.0)
    assert len(lost) == 8
    assert len(received.usable) == 22


def test_too_little_memory_is_nobodys_fault():
    grid = Answered(good, good, good)

    def full(request, pull=grid._client.PullObject):
        if grid._client.owners.get(request.object_id) == 1:
            raise MemoryError
        return pull(request)

    grid._client.PullObject = full
    received, _ = collected(grid)
    assert received.missing == {FIRST + 1: "could not be read: the server has too little memory"}
    assert received.usable == [0, 2]


def test_a_part_that_is_gone_makes_a_reply_unusable():
    grid = Answered(good, good, good)
    grid._client.lost = 0
    received, _ = collected(grid)
    assert received.rejected == {FIRST: "was not sent completely"}
    assert received.usable == [1, 2]


def test_a_superlink_that_is_gone_ends_the_wait_and_no_node_is_blamed():
    time, grid = Time(), Answered(good, good, good)

    def gone(request):
        time.time += SECONDS_TO_RECONNECT
        raise httpx.ConnectError("refused")

    grid._client.PullMessages = gone
    received, _ = collected(grid, timeout=60.0, time=time)
    reason = "the SuperLink could not be reached: ConnectError: refused"
    assert received.missing == dict.fromkeys(NODES, reason)
    assert not received.rejected
    assert time.time <= 60.0 + 3 * SECONDS_TO_RECONNECT  # it is asked twice at the end


def test_a_superlink_that_comes_back_is_asked_again():
    grid = Answered(good, good, good)
    pull, calls = grid._client.PullMessages, []

    def gone_for_a_while(request):
        calls.append(request)
        if len(calls) < 4:
            raise httpx.ReadTimeout("slow")
        return pull(request)

    grid._client.PullMessages = gone_for_a_while
    received, _ = collected(grid, timeout=60.0)
    assert received.usable == [0, 1, 2]


def test_messages_that_answer_nothing_are_ignored():
    """The SuperLink may also hand out messages that somebody sent to the server unasked."""
    grid = Answered(good, good, good)
    pull = grid._client.PullMessages

    def more(request):
        answer = pull(request)
        for message in list(answer.messages_list):
            stranger = answer.messages_list.add()
            stranger.CopyFrom(message)
            stranger.metadata.reply_to_message_id = ""
            answer.message_object_trees.add()
        return answer

    grid._client.PullMessages = more
    received, _ = collected(grid)
    assert received.usable == [0, 1, 2]
    assert not received.rejected


def test_flowers_own_retries_end():
    grid = HttpGrid(token="none")
    assert grid._retry_invoker.max_time is None  # or there is nothing to limit any more
    limit_retries(grid)
    assert grid._retry_invoker.max_time == SECONDS_TO_RECONNECT
    limit_retries(FakeGrid())


def test_another_version_of_flower_is_named_in_the_error():
    grid = HttpGrid(token="none")
    del grid._retry_invoker
    version = importlib.metadata.version("flwr")
    with pytest.raises(UnsupportedFlowerError, match=f"Flower {version} .*_retry_invoker"):
        limit_retries(grid)


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_one_module_alone_uses_private_parts_of_flower():
    """Public are the packages for apps, and the logger of Flower's own templates."""
    public = {"flwr", "flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy"}
    public |= {"flwr.common.logger"}
    folder = Path(fedro.flower.__file__).parent
    private = {
        path.name
        for path in folder.glob("*.py")
        if any(m.startswith("flwr") and m not in public for m in imported_modules(path))
    }
    assert private == {"internals.py"}


def test_the_supported_versions_are_those_of_the_package():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert any(text.endswith(SUPPORTED) for text in project["optional-dependencies"]["flower"])
