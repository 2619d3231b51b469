"""How long a reply lies before it is looked at."""

import pytest
from flwr.app import Message, RecordDict

from fake_flower import FakeGrid, Time, honest, model
from fedro.flower.exchange import exchange


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
    assert len(list(exchange(grid, [message], timeout=1000.0, clock=time.clock))) == 1
    assert time.time <= 1.1 * after + 0.05
    assert len(looks) <= 10 + after + 30  # few of them, however long it takes
