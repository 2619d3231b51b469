"""Messages to and from a process, and every way in which it can end."""

import os
import time
from collections.abc import Callable, Iterator

import pytest

from fedro.common.subprocesses import JsonSubprocess, Message

Start = Callable[[], JsonSubprocess]


@pytest.fixture
def start() -> Iterator[Start]:
    processes: list[JsonSubprocess] = []
    null = os.open(os.devnull, os.O_WRONLY)

    def begin() -> JsonSubprocess:
        processes.append(JsonSubprocess("echo_process", {"FEDRO_TEST": "κ"}, stderr=null))
        return processes[-1]

    yield begin
    os.close(null)
    for process in processes:
        process.process.kill()
        process.process.wait()


def receive(process: JsonSubprocess, number: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < number:
        arrived = process.receive()
        assert arrived is not None
        messages += arrived
    return messages


def test_messages_of_any_length_come_back_in_order(start: Start) -> None:
    process = start()
    sent = [{"text": "n̂\n" * length} for length in (0, 1, 30_000)]
    for message in sent:
        process.send(message)
    received = receive(process, 3)
    assert [message["echo"] for message in received] == sent
    assert received[0]["variable"] == "κ"
    process.close_input()
    assert process.receive() is None
    assert process.stop(timeout=10)
    assert process.process.returncode == 0


def test_a_dead_process(start: Start) -> None:
    process = start()
    process.send({"do": "die"})
    assert process.receive() is None
    process.process.wait(10)
    process.send({"late": True})  # not an error: receive tells
    assert process.stop()
    assert process.process.returncode == 3


def test_a_process_that_does_not_stop_is_killed(start: Start) -> None:
    process = start()
    process.send({})
    receive(process, 1)
    process.send({"do": "sleep"})
    began = time.monotonic()
    assert not process.stop(timeout=0.1)
    assert time.monotonic() - began < 10
    assert process.process.returncode == -9
