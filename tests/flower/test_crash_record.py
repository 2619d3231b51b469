"""What survives a crash in the middle of a round: the draws, and whose reply was being read."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import fedro
from fake_flower import FIRST, FakeGrid, model, small_plan
from fedro.flower.crash_record import STOPPED_WHILE_READING, DrawLog, ReadingNote
from fedro.runs import read, roll_back
from flower_cases import arrays_as_vector, start, strategy


def deadly(message):
    """A reply that kills the server when it is read."""

    class Deadly:
        def has_error(self):
            os.kill(os.getpid(), signal.SIGKILL)

    return Deadly()


def test_draws_are_counted_once_each(tmp_path):
    path = tmp_path / "draws.jsonl"
    log = DrawLog(path)
    log.add(0, [5, 3])
    log.add(0, [3, 5])
    log.add(0, [3, 6])
    log.add(1, [3, 5])
    assert (len(log), len(DrawLog(path)), len(DrawLog())) == (3, 3, 0)
    path.write_bytes(path.read_bytes() + b'{"round": 2, "no')  # the server died while it wrote
    again = DrawLog(path)
    assert len(again) == 3
    again.add(2, [1])
    assert len(DrawLog(path)) == 4


def crash_while_reading(path, round, node):
    note = ReadingNote(path)
    note.begin_round(round)
    before = path.read_bytes() if path.exists() else None
    with note.of(node):
        data = path.read_bytes()
    assert (path.read_bytes() if path.exists() else None) == before  # the note is gone again
    path.write_bytes(data)  # as a killed server leaves it


def unread(path, round):
    note = ReadingNote(path)
    note.begin_round(round)
    return dict(note.unread)


def test_notes_of_a_round_add_up_and_each_round_has_its_own(tmp_path):
    path = tmp_path / "reading.json"
    crash_while_reading(path, 4, 2**63 + 1)
    crash_while_reading(path, 4, 7)
    crash_while_reading(path, 5, 8)
    assert unread(path, 4) == dict.fromkeys([2**63 + 1, 7], STOPPED_WHILE_READING)
    assert list(unread(path, 5)) == [8]
    assert unread(path, 3) == {}
    note = ReadingNote(path)
    note.forget_before(5)
    assert unread(path, 4) == {}
    assert list(unread(path, 5)) == [8]
    note.forget_before(6)
    assert not path.exists()
    path.write_bytes(b'{"4": ["7"')
    assert unread(path, 4) == {}


def test_a_server_that_is_interrupted_blames_nobody(tmp_path):
    """After some good replies, while it waits for the next one."""

    class Interrupted(FakeGrid):
        def pull_messages(self, message_ids):
            if message_ids == ["m5"]:
                raise KeyboardInterrupt
            return super().pull_messages(message_ids)

    options = {"folder": tmp_path / "run", "resume": True, "quarantine": 1}
    with pytest.raises(KeyboardInterrupt):
        start(strategy(**options), Interrupted(), 3)
    strat = strategy(**options)
    start(strat, FakeGrid(), 3)
    assert not any(record.rejected for record in strat.session.ledger.nodes.values())


CRASH = """
import sys
sys.path[:0] = [{helpers!r}, {tests!r}]
from fake_flower import FakeGrid
from flower_cases import start, strategy
from test_crash_record import deadly

fedro_ = strategy(folder={folder!r}, resume=True, checkpoint_every={every})
start(fedro_, FakeGrid(20, {{2: deadly, 11: deadly}}), 6)
"""


@pytest.mark.slow
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.soak), 4])
def test_a_reply_that_kills_the_server_is_not_read_again(tmp_path, every):
    """Two nodes send such replies. Each of these replies stops the server once."""
    folder = tmp_path / "run"
    tests = os.path.dirname(__file__)
    helpers = os.path.join(os.path.dirname(tests), "helpers")
    script = CRASH.format(helpers=helpers, tests=tests, folder=str(folder), every=every)
    codes = []
    for _ in range(20):
        codes.append(subprocess.run([sys.executable, "-c", script], check=False).returncode)
        if codes[-1] == 0:
            break
    assert codes[0] == -signal.SIGKILL  # or there was nothing to survive
    assert codes[-1] == 0
    lines = read(folder).rounds
    ledger = json.loads((folder / "ledger.json").read_text())
    rejected = {
        number: [line["round"] for line in lines if str(number) in line["rejected"]]
        for number in range(20)
    }
    invited = {n: [x["round"] for x in lines if n in x["sampled"]] for n in range(20)}
    for number in (2, 11):
        assert rejected[number] == invited[number]
        record = ledger[str(FIRST + number)]
        assert record["rejected"] == {STOPPED_WHILE_READING: len(invited[number])}
    assert len(codes) - 1 == len(invited[2]) + len(invited[11])  # a crash for each bad reply
    assert not any(rejected[n] for n in range(20) if n not in (2, 11))
    assert not (folder / "reading.json").exists()


class Dies(FakeGrid):
    """The server is switched off after the messages of a round were sent."""

    def __init__(self, dies_in, nodes=20):
        super().__init__(nodes)
        self.dies_in = dies_in

    def pull_messages(self, message_ids):
        if self.sent[-1].content["config"]["server-round"] == self.dies_in:
            raise KeyboardInterrupt
        return super().pull_messages(message_ids)


def test_a_round_that_runs_again_with_the_same_nodes_is_the_same_draw(tmp_path):
    options = {"folder": tmp_path / "run", "resume": True}
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            start(strategy(**options), Dies(3), 5)
    strat = strategy(**options)
    start(strat, FakeGrid(), 5)
    assert strat.session.draws == 5


def test_a_round_that_runs_again_with_other_nodes_is_another_draw(tmp_path):
    options = {"folder": tmp_path / "run", "resume": True, "plan": small_plan(available=17)}
    with pytest.raises(KeyboardInterrupt):
        start(strategy(**options), Dies(3), 5)
    with pytest.raises(KeyboardInterrupt):
        start(strategy(**options), Dies(3, nodes=19), 5)
    strat = strategy(**options)
    start(strat, FakeGrid(18), 5)
    assert strat.session.draws == 5 + 2


def test_inviting_everybody_is_no_draw(tmp_path):
    plan = fedro.plan(clients=20, byzantine=2, rounds=5, sampled=20)
    options = {"folder": tmp_path / "run", "resume": True, "plan": plan}
    for nodes in (20, 19, 18):
        with pytest.raises(KeyboardInterrupt):
            start(strategy(**options, online_wait=0.0), Dies(3, nodes), 5)
    strat = strategy(**options)
    start(strat, FakeGrid(20), 5)
    assert strat.session.draws == 0


def test_draws_that_a_rollback_undoes_count(tmp_path):
    options = {"folder": tmp_path / "run", "resume": True, "plan": small_plan(available=17)}
    start(strategy(**options, keep_checkpoints=9), FakeGrid(20), 5)
    roll_back(tmp_path / "run", 2)
    strat = strategy(**options)
    start(strat, FakeGrid(19), 5)
    assert strat.session.draws == 5 + 3


def test_a_run_ends_when_its_draws_are_used_up(tmp_path):
    plan = small_plan(rounds=5, retries=1, available=17)
    options = {"folder": tmp_path / "run", "resume": True, "plan": plan}
    for nodes in (20, 19):
        with pytest.raises(KeyboardInterrupt):
            start(strategy(**options), Dies(5, nodes), 5)
    with pytest.raises(ValueError, match=r"the plan is for 6 draws, and all are used up .*retries"):
        start(strategy(**options), FakeGrid(18), 5)
    result = start(strategy(**options), FakeGrid(20), 5)  # a draw that was counted before
    assert np.allclose(arrays_as_vector(result.arrays), 5.0)


def test_a_new_run_does_not_count_the_draws_of_a_deleted_one(tmp_path):
    folder = tmp_path / "run"
    start(strategy(folder=folder), FakeGrid(), 3)
    for name in ("run.json", "config.toml", "rounds.jsonl", "summary.json", "model.safetensors"):
        (folder / name).unlink()
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    (folder / "checkpoints").rmdir()
    strat = strategy(folder=folder)
    start(strat, FakeGrid(19), 3, model())
    assert strat.session.draws == 3
