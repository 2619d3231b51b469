"""The Flower engine gives the same bits as the others, even if nodes are lost."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from flwr.app import Error, Message

import fedro
from engine_cases import make_config, make_job
from fake_flower import FakeGrid
from fedro.models import FlatModel
from fedro.simulation import engines
from fedro.simulation.engines import flower_engine, flower_node
from fedro.simulation.engines.inline import one_thread
from fedro.simulation.recording import run_into

SMALL = {"dataset": "digits", "clients": 12, "rounds": 3, "local_steps": 3, "batch_size": 5}
RUNS = {
    "an attack": {"byzantine": 2, "attack": "alie"},
    "dropouts": {"byzantine": 2, "attack": "silent"},
    "NaN": {"byzantine": 2, "attack": "nan"},
    "poisoned data": {"byzantine": 2, "attack": "label_flip"},
    "held back": {"byzantine": 2, "attack": "label_flip | constrain(alpha=0.2)"},
    "void rounds": {"byzantine": 5, "attack": "silent", "sampled": 7, "tolerated": 3},
    "data of the server's": {"byzantine": 2, "attack": "mimic", "rule": "fltrust", "root": 50},
    "statistics": {"model": "engine_cases:with_statistics", "sampled": 4, "tolerated": 0},
}


def works(message):
    return flower_node.train(message, None)


def dies(message):
    return Message(Error(0, "ActorDiedError"), reply_to=message)


class FakeNodes:
    """A simulation without Ray: the nodes of one start after the other, and what they do."""

    def __init__(self, *behavior, nodes=20):
        self.behavior, self.nodes = behavior or ({},), nodes
        self.grids, self.stopped, self.gone = [], 0, None

    def __call__(self):
        behave = self.behavior[min(len(self.grids), len(self.behavior) - 1)]
        self.grid = FakeGrid(self.nodes, behave, works)
        self.grids.append(self.grid)
        return self

    def failure(self):
        return self.gone

    def stop(self):
        self.stopped += 1


@pytest.fixture
def nodes(monkeypatch):
    fake = FakeNodes()
    monkeypatch.setattr(flower_engine.FlowerEngine, "_start_simulation", lambda self: fake())
    return fake


def history(experiment, **changes):
    with one_thread():
        return list(fedro.run(experiment.replace(**changes)))


def assert_same(rounds, others):
    assert len(rounds) == len(others)
    for a, b in zip(rounds, others, strict=True):
        assert torch.equal(a.state.model, b.state.model)
        mine, theirs = (replace(each, seconds={}).as_dict() for each in (a, b))
        assert json.dumps(mine) == json.dumps(theirs)


@pytest.mark.parametrize("given", RUNS.values(), ids=RUNS)
def test_a_run_is_the_same_to_the_bit(nodes, given):
    experiment = fedro.Experiment(**SMALL, **given)
    rounds = history(experiment, engine="flower")
    assert_same(rounds, history(experiment, engine="inline"))
    assert nodes.stopped == 1
    assert len(nodes.grids[0].sent) > 0


def test_the_runs_do_what_their_names_say():
    rounds = {
        name: history(fedro.Experiment(**SMALL, **given), engine="inline")
        for name, given in RUNS.items()
    }
    assert any(each.missing for each in rounds["dropouts"])
    assert any(each.rejected for each in rounds["NaN"])
    assert any(each.void for each in rounds["void rounds"])
    models = [rounds[name][-1].state.model for name in ("poisoned data", "held back")]
    assert not torch.equal(*models)
    last = rounds["statistics"][-1].state.model[-16:]
    assert not torch.equal(last, torch.tensor([0.0] * 8 + [1.0] * 8))


def updates(fake):
    config = make_config()
    with flower_engine.FlowerEngine(config, fake) as running, one_thread():
        jobs = [make_job(row) for row in range(config.rows)]
        losses = running.train(running.flat.vector.clone(), jobs, lr=0.1)
        return running.updates.clone(), losses


def test_few_nodes_do_many_jobs():
    assert torch.equal(updates(FakeNodes(nodes=2))[0], updates(FakeNodes())[0])


def test_what_is_lost_is_done_again_by_fresh_nodes():
    fake = FakeNodes({1: dies, 3: dies}, {0: dies}, {})
    repeated, losses = updates(fake)
    expected, all_losses = updates(FakeNodes())
    assert torch.equal(repeated, expected)
    assert losses == all_losses
    assert [len(grid.sent) for grid in fake.grids] == [5, 2, 1]
    assert fake.stopped == 3


def test_nodes_that_are_always_lost_end_the_run():
    fake = FakeNodes({0: dies, 1: dies})
    with pytest.raises(ChildProcessError, match=r"in 3 attempts.*error 0: ActorDiedError"):
        updates(fake)
    assert fake.stopped == len(fake.grids) == 3


def test_a_model_that_fails_ends_the_run_at_once():
    def fails(message):
        return Message(Error(2, "ZeroDivisionError: the model's own"), reply_to=message)

    fake = FakeNodes({2: fails})
    with pytest.raises(ChildProcessError, match="failed: ZeroDivisionError: the model's own"):
        updates(fake)
    assert fake.stopped == len(fake.grids) == 1


def test_a_simulation_that_ends_and_one_that_is_silent_are_started_anew(monkeypatch):
    fake = FakeNodes({0: lambda message: None})
    fake.gone = "the Flower simulation has ended"
    with pytest.raises(ChildProcessError, match="last time: the Flower simulation has ended"):
        updates(fake)
    fake = FakeNodes({0: lambda message: None}, {})
    monkeypatch.setattr(flower_engine, "SECONDS_WITHOUT_REPLY", 0.0)
    expected = updates(FakeNodes())[0]
    assert torch.equal(updates(fake)[0], expected)
    assert len(fake.grids) == 2


def test_a_run_goes_on_after_its_nodes_were_lost(nodes, tmp_path):
    experiment = fedro.Experiment(**SMALL, **RUNS["an attack"], engine="flower")
    whole = history(experiment)
    rounds = run_into(tmp_path / "run", experiment)
    next(rounds)
    nodes.grid.default = dies
    nodes.behavior = (dict.fromkeys(range(20), dies),)
    with pytest.raises(ChildProcessError, match="3 attempts"):
        list(rounds)
    nodes.behavior = ({},)
    with one_thread():
        rest = list(run_into(tmp_path / "run", experiment, resume=True))
    assert [after.round for after in rest] == [1, 2]
    assert_same(rest, whole[1:])


def test_what_it_needs(monkeypatch):
    flat = FlatModel(make_config().build())
    with pytest.raises(ValueError, match="engine='flower' needs a model that other processes"):
        engines.choose_engine("flower", flat, "cpu", False)
    with pytest.raises(ValueError, match="engine='flower' trains on the CPU, not on cuda"):
        engines.choose_engine("flower", flat, "cuda", True)
    assert engines.choose_engine("flower", flat, "cpu", True) == "flower"
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == "ray" else object())
    with pytest.raises(ValueError, match=r"needs Flower and Ray: pip install 'fedro\[flower\]'"):
        engines.choose_engine("flower", flat, "cpu", True)


def test_a_node_with_another_version_says_so():
    description = json.dumps({"versions": {"fedro": "0.0.1", "torch": "1.0"}})
    with pytest.raises(ValueError, match=r"the server .*0\.0\.1.*install the same"):
        flower_node.build_model(description)


@pytest.mark.slow
def test_other_engines_need_neither_flower_nor_ray():
    code = (
        "import sys, fedro\n"
        "experiment = fedro.Experiment(clients=5, rounds=1, sampled=3, tolerated=0)\n"
        "list(fedro.run(experiment))\n"
        "sys.exit('flwr' in sys.modules or 'ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
