"""A federation in which some nodes lie: the log, the ledger and the run folder name them."""

import itertools
import json
import logging

import numpy as np

import fedro
from fake_flower import FIRST, FakeGrid, sends
from flower_cases import start, strategy

logging.getLogger("flwr").propagate = True  # for caplog
EVERYONE = fedro.plan(clients=20, byzantine=3, rounds=200, sampled=20)


def noisy(direction, seed):
    """Moves by ±1 in all coordinates, with noise of its own in each round."""
    rng = np.random.default_rng(seed)

    def change(weights):
        return {
            name: (value + direction + 0.3 * rng.normal(size=value.shape)).astype(value.dtype)
            for name, value in weights.items()
        }

    return sends(change)


def repents(rounds, seed):
    """Moves against the others in its first rounds, and then as they do."""
    before, after, replies = noisy(-1.0, seed), noisy(1.0, seed), itertools.count()
    return lambda *message: (before if next(replies) < rounds else after)(*message)


def federation(**liars):
    """20 nodes; those in `liars` behave as given."""
    behave = {number: noisy(1.0, number) for number in range(20)}
    return FakeGrid(20, behave | {int(name[1:]): action for name, action in liars.items()})


def copy_of(step):
    return sends(
        lambda weights: {name: value + np.float32(step) for name, value in weights.items()}
    )


def messages(caplog, text):
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def test_the_log_names_new_suspects_once(caplog, tmp_path):
    strat = strategy(folder=tmp_path / "run")
    with caplog.at_level(logging.INFO):
        start(strat, federation(n3=noisy(-1.0, 3)), 33)
    node = FIRST + 3
    number = strat.session.ledger.number(node)
    (text,) = messages(caplog, "is suspect since round")[:-1]
    assert text.startswith(f"Node {node} (client {number}) is suspect since round ")
    assert "its updates point against the others' (slope −" in text
    assert "; others 1.0 ± 0." in text
    since = strat.session.ledger.nodes[node].suspect_since
    assert f"since round {since + 1}:" in text
    assert messages(caplog, "is suspect since round")[-1].endswith("`fedro suspects` shows why")
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert ledger[str(node)]["suspect_since"] == since
    assert [r["suspect_since"] for r in ledger.values()].count(None) == 19
    report = fedro.suspects(tmp_path / "run")
    assert report.suspects == [number]
    (suspect,) = (client for client in report.clients if client.flagged)
    assert (suspect.node, suspect.since) == (str(node), since)
    assert report.byzantine is None


def test_copies_are_named(caplog):
    strat = strategy(plan=EVERYONE)
    with caplog.at_level(logging.INFO):
        start(strat, federation(n1=copy_of(0.7), n2=copy_of(0.7), n4=copy_of(0.7)), 5)
    texts = messages(caplog, "it sends the same updates as 2 others (clients ")
    assert len(texts) == 3
    assert all(f"Node {FIRST + i} " in " ".join(texts) for i in (1, 2, 4))


def test_who_clears_itself_is_logged(caplog):
    class Reformed(FakeGrid):
        def push_messages(self, messages):
            if messages[0].content["config"]["server-round"] == 16:
                self.behave[FIRST + 3] = noisy(1.0, 3)
            return super().push_messages(messages)

    grid = Reformed(20)
    grid.behave = federation(n3=noisy(-1.0, 3)).behave
    strat = strategy(plan=EVERYONE)
    with caplog.at_level(logging.INFO):
        start(strat, grid, 200)
    assert messages(caplog, f"Node {FIRST + 3} (client 3) is suspect since round 10")
    assert messages(caplog, f"Node {FIRST + 3} (client 3) is not suspect any more")
    assert strat.session.ledger.nodes[FIRST + 3].suspect_since is None


def test_suspects_are_left_out_and_counted(caplog, tmp_path):
    strat = strategy(plan=EVERYONE, exclude="evidence", folder=tmp_path / "run")
    with caplog.at_level(logging.INFO):
        start(strat, federation(n3=repents(12, 3)), 40)
    record = strat.session.ledger.nodes[FIRST + 3]
    lines = fedro.runs.read(tmp_path / "run").rounds
    times = sum(str(record.number) in line["excluded"] for line in lines)
    assert times > 0
    assert not any(line["excluded"] for line in lines[:12])  # so far off that it can stay
    assert sum(record.excluded.values()) == times
    assert record.used == record.invited - times
    assert len(messages(caplog, "left out: node")) == times


def test_a_resumed_run_does_not_name_them_again(caplog, tmp_path):
    grid = federation(n3=noisy(-1.0, 3))
    start(strategy(folder=tmp_path / "run"), grid, 33)
    caplog.clear()
    (tmp_path / "run" / "summary.json").unlink()
    with caplog.at_level(logging.INFO):
        start(strategy(folder=tmp_path / "run", resume=True), grid, 36)
    assert messages(caplog, "[ROUND 34/36]")
    assert not messages(caplog, "slope")


def test_without_liars_nobody_is_named(caplog):
    with caplog.at_level(logging.INFO):
        start(strategy(), federation(), 33)
    assert not messages(caplog, "suspect")
