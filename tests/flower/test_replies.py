"""Every way in which a reply can be wrong, and what the server makes of it."""

import io
import threading
import warnings
from contextlib import suppress

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.run import RunNotRunningException
from flwr.superlink.grid.http_grid import HttpGrid

from fake_flower import FIRST, FakeGrid, Time, answer, honest, model, raises, silent, weights
from fedro.flower.exchange import RECONNECT, exchange, limit_retries, readable
from fedro.flower.layout import Layout
from fedro.flower.npy import Refused, read_floats
from fedro.flower.replies import receive, receive_updates


def invite(grid, arrays, nodes=5):
    record = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": 1})})
    return [Message(record, FIRST + i, "train") for i in range(nodes)]


def received(behave, arrays=None, nodes=5, timeout=10.0):
    """What comes of a round in which some nodes behave like this."""
    arrays = arrays or model()
    grid, time, layout = FakeGrid(nodes, behave), Time(), Layout(arrays)
    answers = exchange(grid, invite(grid, arrays, nodes), timeout, time.clock)
    updates = torch.full((nodes, layout.width), torch.nan)
    start = layout.vector(arrays)
    found, metrics, rows = receive_updates(answers, grid.nodes, updates, start, layout, "arrays")
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
    "an array too many": (changed(more=np.zeros(2)), "holds 1 arrays that the model has not"),
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
    "a claim that is no text": (broken(data=None), "unreadable: TypeError"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_reply_is_rejected_and_spoils_no_other(kind):
    act, reason = WRONG[kind]
    found, updates, rows, _ = received({2: act})
    assert reason in found.rejected[FIRST + 2]
    assert not found.rejected[FIRST + 2].startswith("Refused")  # a name of our own code
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
    (message,) = invite(FakeGrid(), model(), 1)
    answers = [(FIRST + 9, honest(1.0)(message)), (1, raises(message))]
    found = receive(answers, [FIRST], lambda row, message: pytest.fail("taken"))
    assert (found.uninvited, found.missing) == (2, {FIRST: "did not answer"})


def test_what_cannot_be_sent_is_missing():
    class Closed(FakeGrid):
        def push_messages(self, messages):
            raise ConnectionError("refused")

    class Partly(FakeGrid):
        def push_messages(self, messages):
            return super().push_messages(messages)[1:]

    class Holes(FakeGrid):
        def push_messages(self, messages):
            return [None, *list(super().push_messages(messages))[1:]]

    (first,) = invite(None, model(), 1)
    found = list(exchange(Closed(), [first], 1.0, Time().clock))
    assert found == [(FIRST, "nothing could be sent: ConnectionError: refused")]
    for kind in (Partly, Holes):
        messages = invite(None, model(), 3)
        found = dict(exchange(kind(), messages, 1.0, Time().clock))
        assert found[FIRST] == "nothing could be sent"
        assert [isinstance(found[FIRST + i], Message) for i in (1, 2)] == [True, True]
    assert list(exchange(Closed(), [], 1.0)) == []


def test_a_superlink_that_is_gone_does_not_hold_the_run_up():
    time = Time()

    class Gone(FakeGrid):
        def pull_messages(self, message_ids):
            time.time += RECONNECT
            raise ConnectionError("refused")

    found = list(exchange(Gone(), invite(None, model(), 5), 60.0, time.clock))
    assert [node for node, _ in found] == [FIRST, FIRST + 1]
    assert found[0][1] == "could not be read: ConnectionError: refused"
    assert time.time == 60.0


def test_an_unreadable_reply_that_flower_gives_once_is_not_called_silence():
    class Once(FakeGrid):
        def pull_messages(self, message_ids):
            (key,) = message_ids
            reply, self.replies[key] = self.replies[key], None
            if reply is not None:
                raise IndexError("no children")
            return []

    found = list(exchange(Once(), invite(None, model(), 1), 5.0, Time().clock))
    assert found == [(FIRST, "could not be read: IndexError: no children")]


def test_half_a_reply_holds_nobody_up(monkeypatch):
    monkeypatch.setattr("fedro.flower.exchange.GRACE", 0.05)
    over, slow = threading.Event(), threading.Event()

    class Slow(FakeGrid):
        def pull_messages(self, message_ids):
            if message_ids == ["m0"]:
                over.wait(20)
            if message_ids == ["m1"]:
                assert slow.wait(20)
            if message_ids == ["m2"]:
                slow.set()
            return super().pull_messages(message_ids)

    found = dict(exchange(Slow(), invite(None, model(), 3), 1.0))
    over.set()
    assert found.pop(FIRST) == "did not send its reply to the end"
    assert [isinstance(found[FIRST + i], Message) for i in (1, 2)] == [True, True]


def test_a_run_that_is_stopped_stops():
    class Stopped(FakeGrid):
        def pull_messages(self, message_ids):
            raise RunNotRunningException

    with pytest.raises(RunNotRunningException):
        list(exchange(Stopped(), invite(None, model(), 3), 1.0, Time().clock))


def test_flowers_own_retries_end():
    grid = HttpGrid(token="none")
    assert grid._retry_invoker.max_time is None  # or there is nothing to limit any more
    limit_retries(grid)
    assert grid._retry_invoker.max_time == RECONNECT
    limit_retries(FakeGrid())


def test_honest_habits_are_accepted():
    fortran = np.asfortranarray(np.arange(6, dtype=">f8").reshape(2, 3))
    _, updates, rows, _ = received({1: changed(**{"layer.weight": fortran})})
    assert rows.size == 5
    assert updates[1].tolist() == [0, 1, 2, 3, 4, 5, 0, 0]


def test_statistics_come_last_and_whole_numbers_stay_out():
    arrays = model(
        **{
            "norm.running_var": np.ones(2, np.float32),
            "norm.num_batches_tracked": np.array(7),
            "norm.weight": np.full(2, 3, np.float32),
        }
    )
    layout = Layout(arrays)
    assert (layout.trained, layout.width, layout.variances) == (10, 12, [slice(10, 12)])
    vector = layout.vector(arrays)
    assert vector.tolist() == [0.0] * 8 + [3.0, 3.0, 1.0, 1.0]
    again = layout.record(vector)
    assert list(again) == list(arrays)
    assert all(again[name].data == arrays[name].data for name in arrays)
    row = torch.empty(12)
    layout.write({n: a for n, a in arrays.items() if n != "norm.num_batches_tracked"}, row)
    assert torch.equal(row, vector)
    named = Layout(model(), ["layer.bias"])
    assert (named.trained, named.width) == (6, 8)


def test_models_that_cannot_be_trained_are_refused():
    with pytest.raises(ValueError, match="no such array of floats"):
        Layout(model(), ["bias"])
    with pytest.raises(ValueError, match="no floating-point parameter"):
        Layout(ArrayRecord({"a": Array(np.zeros(3, int))}))
    nan = model(more=np.full(2, np.nan, np.float32))
    with pytest.raises(ValueError, match="start from a finite one"):
        Layout(nan).vector(nan)


def test_doubles_stay_doubles():
    arrays = model(wide=np.full(1, 1 / 3))
    layout = Layout(arrays)
    assert layout.dtype == torch.float64
    again = layout.record(layout.vector(arrays))
    assert again["wide"].numpy()[0] == 1 / 3
    assert again["layer.bias"].dtype == "float32"


def test_arrays_without_numbers_and_scalars_are_read():
    for value in (np.zeros((0, 3), np.float32), np.array(2.0, np.float32)):
        assert np.array_equal(read_floats("a", Array(value), value.shape), value)


def test_random_bytes_never_do_more_than_be_refused():
    random = np.random.default_rng(0)
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 3), np.float32))
    good = np.frombuffer(buffer.getvalue(), np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(300):
            data = good.copy()
            data[random.integers(len(data), size=4)] = random.integers(256, size=4)
            array = Array("float32", (2, 3), "numpy.ndarray", data.tobytes())
            with suppress(Refused):
                assert read_floats("a", array, (2, 3)).shape == (2, 3)


def test_words_of_others_are_made_harmless():
    assert readable("a\x1b[31m\nb") == "a?[31m b"
    long = readable("start " + "\x00" * 10**6 + " RuntimeError: no data")
    assert long.startswith("start ???")
    assert long.endswith("??? RuntimeError: no data")
    assert len(long) < 200
