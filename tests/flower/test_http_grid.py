"""Flower's grid for deployment, and replies that were packed by hand to do harm."""

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse, PushAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.run import Run
from flwr.superlink.grid.http_grid import HttpGrid

from fake_flower import FIRST, Time, answer, honest, model, weights
from fedro.flower.layout import ArrayLayout
from fedro.flower.messaging import send_and_collect
from fedro.flower.replies import receive_updates


class Link:
    """A SuperLink that gives, for each message, the objects that a client has uploaded."""

    def __init__(self):
        self.uploads, self.objects = {}, {}

    def answer(self, message, reply, spoil=lambda content: content):
        """Take a reply: its envelope is checked, what is in the objects is not."""
        reply.metadata.__dict__["_message_id"] = reply.object_id
        root = reply.object_id
        for key, item in get_all_nested_objects(reply).items():
            content = item.deflate()
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
        content = self.objects[request.object_id]
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request):  # noqa: N802
        return None


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


def good(link, message):
    link.answer(message, answer(message, {n: v + 1 for n, v in weights(message).items()}))


class Answered(HttpGrid):
    """Three nodes, of which the first is bad, have answered as soon as the messages are sent."""

    def __init__(self, bad):
        super().__init__(token="none")
        self._client, self.acts = Link(), (bad, good, good)
        self.set_run(Run.create_empty(run_id=1))

    def push_messages(self, messages):
        ids = super().push_messages(messages)
        for message, act in zip(messages, self.acts, strict=True):
            act(self._client, message)
        return ids


NODES = [FIRST + i for i in range(3)]


def invitations():
    record = RecordDict({"arrays": model(), "config": ConfigRecord({"server-round": 1})})
    return [Message(record, node, "train") for node in NODES]


@pytest.mark.parametrize("bad", [impostor, cut, strange, records])
def test_what_a_client_packs_spoils_no_other_reply(bad):
    layout = ArrayLayout(model())
    updates, start = torch.zeros(3, layout.width), layout.vector(model())
    answers = send_and_collect(Answered(bad), invitations(), 5.0, Time().clock)
    found, _, rows = receive_updates(answers, NODES, updates, start, layout, "arrays")
    assert np.array_equal(updates[1:], np.ones((2, layout.width))), found
    if bad is impostor:
        assert rows.tolist() == [0, 1, 2]
        assert updates[0, 0] == 50.0
    else:
        assert rows.tolist() == [1, 2]
        assert "could not be read" in found.missing[FIRST]


@pytest.mark.parametrize("bad", [cut, strange, records])
def test_flowers_own_exchange_would_end_the_run(bad):
    with pytest.raises((ValueError, AttributeError, IndexError, KeyError)):
        Answered(bad).send_and_receive(invitations(), timeout=5.0)


def test_flowers_own_exchange_believes_who_it_was():
    replies = Answered(impostor).send_and_receive(invitations(), timeout=5.0)
    assert sorted(reply.metadata.src_node_id - FIRST for reply in replies) == [1, 1, 2]
