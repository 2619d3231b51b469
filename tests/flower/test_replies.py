"""Every way in which a reply can be wrong, and how the server sorts it."""

import numpy as np
import pytest
import torch
from flwr.app import Message, MetricRecord, RecordDict

from fake_flower import (
    FIRST,
    FakeGrid,
    Time,
    answer,
    honest,
    invite,
    model,
    raises,
    silent,
    weights,
)
from fedro.flower.layout import ArrayLayout
from fedro.flower.messaging import send_and_collect
from fedro.flower.replies import Received, receive, receive_updates


def received(behave, arrays=None, nodes=5, timeout=10.0):
    """What comes of a round in which some nodes behave like this."""
    arrays = arrays or model()
    grid, time, layout = FakeGrid(nodes, behave), Time(), ArrayLayout(arrays)
    answers = send_and_collect(grid, invite(arrays, nodes), timeout, time.clock)
    updates = torch.full((nodes, layout.width), torch.nan)
    start = layout.vector(arrays)
    found = Received(grid.nodes)
    metrics, rows = receive_updates(answers, found, updates, start, layout, "arrays")
    assert sorted(metrics) == rows.tolist() == found.usable
    return found, updates, rows, time


def broken(**fields):
    """A reply whose first array has other fields than it should."""

    def act(message):
        reply = answer(message, weights(message))
        array = reply.content["arrays"]["layer.weight"]
        for name, value in fields.items():
            setattr(array, name, value(array) if callable(value) else value)
        return reply

    return act


def header(text, body=b""):
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + body


def changed(**arrays):
    return lambda message: answer(message, {**weights(message), **arrays})


def without(name):
    return lambda message: answer(
        message, {key: value for key, value in weights(message).items() if key != name}
    )


HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
OBJECTS = "{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }"
SHORT = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
WRONG = {
    "wrong key": (lambda m: answer(m, weights(m), key="weights"), "only under 'weights'"),
    "no record": (lambda m: Message(RecordDict(), reply_to=m), "has no arrays under 'arrays'"),
    "a metric": (
        lambda m: Message(RecordDict({"arrays": MetricRecord({"a": 1.0})}), reply_to=m),
        "has no arrays under 'arrays'",
    ),
    "wrong shape": (
        changed(**{"layer.weight": np.zeros((3, 2), np.float32)}),
        "shape (3, 2) instead of (2, 3)",
    ),
    "flat": (changed(**{"layer.weight": np.zeros(6, np.float32)}), "shape (6,) instead of (2, 3)"),
    "whole numbers": (changed(**{"layer.weight": np.zeros((2, 3), int)}), "numbers of type int64"),
    "complex": (changed(**{"layer.weight": np.zeros((2, 3), complex)}), "of type complex128"),
    "longdouble": (
        changed(**{"layer.weight": np.zeros((2, 3), np.longdouble)}),
        "of type float128",
    ),
    "texts": (changed(**{"layer.weight": np.full((2, 3), "a")}), "numbers of type <U1"),
    "nan": (changed(**{"layer.bias": np.array([0, np.nan], np.float32)}), "holds NaN or Inf"),
    "inf": (changed(**{"layer.bias": np.array([0, np.inf], np.float32)}), "holds NaN or Inf"),
    "beyond float32": (changed(**{"layer.bias": np.array([0, 1e300])}), "holds NaN or Inf"),
    "an array too many": (changed(more=np.zeros(2)), "holds 1 arrays that the model does not have"),
    "an array too few": (without("layer.bias"), "lacks 1 of the model's arrays: 'layer.bias'"),
    "ten megabytes": (broken(data=bytes(10**7)), "10,000,000 bytes, too many for shape (2, 3)"),
    "a huge claim": (broken(data=header(HUGE)), "shape (1000000000000,) instead of (2, 3)"),
    "objects": (broken(data=header(OBJECTS)), "numbers of type object"),
    "cut off": (broken(data=lambda a: a.data[:-1]), "does not have the bytes"),
    "no body": (broken(data=header(SHORT)), "does not have the bytes"),
    "no array": (broken(data=b"hello"), "is not a NumPy array"),
    "nothing": (broken(data=b""), "is not a NumPy array"),
    "deep header": (broken(data=header("(" * 9000)), "is not a NumPy array"),
    "another format": (broken(stype="pickle"), "not written as a NumPy array"),
    "a claim that is no text": (broken(data=None), "could not be read: TypeError"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_reply_is_rejected_and_spoils_no_other(kind):
    act, reason = WRONG[kind]
    found, updates, rows, _ = received({2: act})
    assert reason in found.rejected[FIRST + 2]
    assert not found.rejected[FIRST + 2].startswith("UnusableReply")  # a name of our own code
    assert rows.tolist() == [0, 1, 3, 4]
    assert not found.missing
    assert (updates[rows] == 1).all()


MISSING = {
    "raises": (raises, "error 2: boom boom"),
    "is late": (silent, "did not answer"),
    "cannot be unpacked": (
        lambda m: ValueError("bad\nobject"),
        "could not be read: ValueError: bad",
    ),
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_reply_that_does_not_come_is_missing(kind):
    act, reason = MISSING[kind]
    found, _, rows, time = received({0: act})
    assert found.missing[FIRST].startswith(reason)
    assert "\n" not in found.missing[FIRST]
    assert len(found.missing[FIRST]) < 250
    assert (rows.tolist(), found.rejected) == ([1, 2, 3, 4], {})
    assert time.time <= 10.0


def test_waiting_for_replies_ends():
    found, _, rows, time = received({}, nodes=3, timeout=0.5)
    assert (rows.size, time.slept) == (3, [])
    found, _, rows, time = received(dict.fromkeys(range(5), silent), timeout=7.0)
    assert len(found.missing) == 5
    assert time.time == 7.0


def test_replies_count_for_whom_they_were_asked_of_not_for_whom_they_name():
    def impostor(message):
        reply = honest(5.0)(message)
        reply.metadata.__dict__["_src_node_id"] = FIRST + 1
        reply.metadata.__dict__["_reply_to_message_id"] = "m1"
        return reply

    found, updates, rows, _ = received({0: impostor})
    assert rows.tolist() == [0, 1, 2, 3, 4]
    assert updates[:, 0].tolist() == [5, 1, 1, 1, 1]
    assert (found.missing, found.rejected) == ({}, {})


def test_two_replies_of_a_node_are_none():
    found, _, rows, _ = received({3: lambda m: [honest(1.0)(m), honest(2.0)(m)]})
    assert found.rejected == {FIRST + 3: "answered twice"}
    assert rows.tolist() == [0, 1, 2, 4]
    found, _, rows, _ = received({3: lambda m: [raises(m), honest(2.0)(m)]})
    assert (found.missing, rows.tolist()) == ({}, [0, 1, 2, 4])


def test_uninvited_replies_are_only_counted():
    answers = [(FIRST + 9, lambda: pytest.fail("read")), (1, lambda: pytest.fail("read"))]
    found = receive(answers, Received([FIRST]), lambda row, message: pytest.fail("taken"))
    assert (found.uninvited, found.missing) == (2, {FIRST: "did not answer"})


def test_honest_habits_are_accepted():
    fortran = np.asfortranarray(np.arange(6, dtype=">f8").reshape(2, 3))
    _, updates, rows, _ = received({1: changed(**{"layer.weight": fortran})})
    assert rows.size == 5
    assert updates[1].tolist() == [0, 1, 2, 3, 4, 5, 0, 0]
