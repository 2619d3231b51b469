"""Messages are sent and replies collected: nothing blocks the server, and every wait ends."""

import pytest
from flwr.app import Message, RecordDict
from flwr.supercore.run import RunNotRunningException

from fake_flower import FIRST, FakeGrid, Time, honest, invite, model
from fedro.flower.messaging import one_line, send_and_collect


@pytest.mark.parametrize("after", [0.01, 0.3, 2.0, 7.0, 100.0])
def test_looking_adds_little_to_the_wait(after):
    time, grid = Time(), FakeGrid(1)
    pull, looks = grid.pull_messages, []

    def pull_later(keys):
        looks.append(time.time)
        return pull(keys) if time.time >= after else []

    grid.pull_messages = pull_later
    message = Message(RecordDict({"arrays": model()}), grid.nodes[0], "train")
    grid.default = honest(1.0)
    assert len(list(send_and_collect(grid, [message], timeout=1000.0, clock=time.clock))) == 1
    assert time.time <= 1.1 * after + 0.05
    assert len(looks) <= 10 + after + 30  # few of them, however long it takes


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

    (first,) = invite(model(), 1)
    found = list(send_and_collect(Closed(), [first], 1.0, Time().clock))
    assert found == [(FIRST, "nothing could be sent: ConnectionError: refused")]
    for kind in (Partly, Holes):
        messages = invite(model(), 3)
        found = dict(send_and_collect(kind(), messages, 1.0, Time().clock))
        assert found[FIRST] == "nothing could be sent"
        assert [isinstance(found[FIRST + i](), Message) for i in (1, 2)] == [True, True]
    assert list(send_and_collect(Closed(), [], 1.0)) == []


def test_an_unreadable_reply_that_flower_gives_once_is_not_called_silence():
    class Once(FakeGrid):
        def pull_messages(self, message_ids):
            (key,) = message_ids
            reply, self.replies[key] = self.replies[key], None
            if reply is not None:
                raise IndexError("no children")
            return []

    found = list(send_and_collect(Once(), invite(model(), 1), 5.0, Time().clock))
    assert found == [(FIRST, "could not be read: IndexError: no children")]


def test_the_wait_ends_when_enough_replies_are_there():
    time, grid = Time(), FakeGrid(5, behave={4: lambda message: None})
    replies = send_and_collect(
        grid, invite(model(), 5), 1000.0, time.clock, enough=lambda seconds: seconds >= 30
    )
    assert [node for node, _ in replies] == grid.nodes[:4]
    assert 30 <= time.time < 32


def test_there_is_a_last_look_after_the_deadline():
    """The server was busy with other replies for longer than it wanted to wait."""
    time, grid = Time(), FakeGrid(3)
    replies = send_and_collect(grid, invite(model(), 3), 5.0, time.clock)
    pull = grid.pull_messages
    grid.pull_messages = lambda keys: pull(keys) if time.time or keys == ["m0"] else []
    assert next(replies)[0] == FIRST
    time.time = 60.0  # reading this reply took long, and meanwhile the others arrived
    assert [node for node, _ in replies] == [FIRST + 1, FIRST + 2]


def test_a_run_that_is_stopped_stops():
    class Stopped(FakeGrid):
        def pull_messages(self, message_ids):
            raise RunNotRunningException

    with pytest.raises(RunNotRunningException):
        list(send_and_collect(Stopped(), invite(model(), 3), 1.0, Time().clock))


def test_words_of_others_are_made_harmless():
    assert one_line("a\x1b[31m\nb") == "a?[31m b"
    long = one_line("start " + "\x00" * 10**6 + " RuntimeError: no data")
    assert long.startswith("start ???")
    assert long.endswith("??? RuntimeError: no data")
    assert len(long) < 200
