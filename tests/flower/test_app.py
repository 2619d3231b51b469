"""The example app, without processes: what bad clients send, and what a bad run config is told."""

import logging

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.cli.build import build_fab_from_disk

from fake_flower import FakeGrid
from fedro.runs import RunFolderError, read
from fedro.simulation.round import jobs
from fedro_app import client_app, server_app
from fedro_app.attackers import attack_in_round, attacks_of, parse_lone_attack
from fedro_app.task import plan_of, setup_of, with_clients
from flower_app import APP, run_config

logging.getLogger("flwr").propagate = True  # for caplog


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def context(config, client=None, clients=10):
    node = {} if client is None else {"partition-id": client, "num-partitions": clients}
    return Context(1, 1, node, RecordDict(), config)


def app_grid(config, clients=10):
    """Nodes that run the client app; an exception becomes an error, as with Flower."""

    def node(number):
        def act(message):
            try:
                return client_app.app(message, context(config, number, clients))
            except Exception as error:
                return Message(Error(2, str(error)), reply_to=message)

        return act

    return FakeGrid(clients, {number: node(number) for number in range(clients)})


@pytest.mark.slow
def test_the_app_learns_with_attackers_among_its_clients(tmp_path):
    config = run_config(
        **{"folder": str(tmp_path / "run"), "num-server-rounds": 12, "sampled": 9},
        **{"attackers": "2,7", "attack": "huge(value=5.0); raise", "evaluate-every": 6},
        set="partition=iid; client_lr=0.3",
    )
    server_app.app(app_grid(config), context(config))
    run = read(tmp_path / "run")
    assert run.finished
    assert (run.rounds[0]["available"], run.rounds[0]["tolerated"]) == (10, 2)
    reasons = [why for line in run.rounds for why in line["missing"].values()]
    assert set(reasons) == {"error 2: this client is told to fail"}
    assert ["score" in line for line in run.rounds] == ([False] * 5 + [True]) * 2
    assert run.rounds[-1]["score"]["clients"] > 0.85
    with pytest.raises(RunFolderError, match="holds a run"):
        server_app.app(app_grid(config), context(config))
    server_app.app(app_grid(config), context({**config, "resume": True}))  # it is complete
    assert read(tmp_path / "run").rounds == run.rounds


SENT = {
    "sign_flip": lambda own, sent: torch.allclose(sent, -own, atol=1e-5),
    "zero": lambda own, sent: sent.abs().max() == 0,
    "nan": lambda own, sent: sent.isnan().all(),
    "inf": lambda own, sent: sent.isinf().all(),
    "huge(value=1e6)": lambda own, sent: torch.allclose(sent, torch.tensor(1e6)),
    "gauss(std=2.0)": lambda own, sent: 1.8 < sent.std() < 2.2,
    "scaling(factor=3.0)": lambda own, sent: torch.allclose(sent, 3 * own, atol=1e-5),
    "label_flip": lambda own, sent: torch.dot(own, sent) < 0.9 * own.norm() * sent.norm(),
    "none": lambda own, sent: torch.equal(own, sent),
    "patient(until=1) | label_flip | nan | silent": lambda own, sent: torch.equal(own, sent),
    "patient(until=0) | nan": lambda own, sent: sent.isnan().all(),
}


@pytest.mark.parametrize("attack", SENT)
def test_what_an_attacker_sends(attack):
    config = run_config(attackers="1", attack=attack)
    setup = setup_of(with_clients(config, 10))
    arrays = ArrayRecord(setup.build().state_dict())
    told = ConfigRecord({"server-round": 1, "lr": 0.1, "local-steps": 10})
    message = Message(RecordDict({"arrays": arrays, "config": told}), 7, "train")

    def update(config):
        reply = client_app.train(message, context(config, 1)).content["arrays"]
        pairs = ((reply[name].numpy(), arrays[name].numpy()) for name in arrays)
        return torch.from_numpy(np.concatenate([(new - old).ravel() for new, old in pairs]))

    assert SENT[attack](update(run_config()), update(config))


def test_what_clients_send_is_what_a_simulation_has():
    """The same batches and random streams: a deployment can be compared with `fedro.run`."""
    setup = setup_of(with_clients(run_config(), 10))
    with setup.make_engine() as engine:
        ids = np.array([4])
        engine.train(setup.start, list(jobs(setup, 0, ids, np.zeros(1, bool))), 0.1)
        own = engine.updates[0].clone()
    arrays = ArrayRecord(setup.build().state_dict())
    told = ConfigRecord({"server-round": 1, "lr": 0.1, "local-steps": 10})
    message = Message(RecordDict({"arrays": arrays, "config": told}), 7, "train")
    reply = client_app.train(message, context(run_config(), 4)).content["arrays"]
    sent = np.concatenate([(reply[n].numpy() - arrays[n].numpy()).ravel() for n in arrays])
    assert np.allclose(own.numpy(), sent, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"clients": "ten"}, r"clients='ten': must be a whole number"),
        ({"byzantine": "many"}, r"byzantine='many': write a whole number, or a share"),
        ({"byzantine": 5}, r"5"),
        ({"sampled": 11}, r"sampled=11: must be from 0 to 10"),
        ({"num-server-rounds": 0}, r"num-server-rounds=0: must be at least 1"),
        ({"dropout": 1.5}, r"dropout=1.5: need 0 ≤ dropout < 1"),
        ({"timeout": 0}, r"timeout=0: need seconds > 0"),
        ({"experiment": "dem"}, r"dem: there is no such file; give a TOML file, or one of"),
        ({"set": "local_step=3"}, r"local_step.*local_steps"),
        ({"set": "rounds=3"}, r"rounds has a key of its own in the run config"),
        ({"data": "/no/such"}, r"path"),
        ({"attackers": "0,10"}, r"'10' is no partition; give numbers from 0 to 9"),
        ({"attackers": "a"}, r"'a' is no partition"),
        ({"attackers": "1,2,3", "attack": "nan; zero"}, r"2 attacks for 3 attackers"),
        ({"attackers": "1", "attack": "alie"}, r"a client alone cannot do that.*wrong-shape"),
        ({"attackers": "1", "attack": "takeover"}, r"a client alone cannot do that"),
        ({"attackers": "1", "attack": "sign_flop"}, r"sign_flip"),
        ({"attackers": "1", "attack": "nan/alie"}, r"a client alone cannot do that"),
        ({"resume": "yes"}, r"resume='yes': must be true or false"),
        ({"evaluate-every": -1}, r"evaluate-every=-1: must be at least 0"),
    ],
)
def test_what_is_wrong_with_a_run_config_is_said(tmp_path, changes, reason):
    config = run_config(**{"folder": str(tmp_path / "run"), **changes})
    with pytest.raises(ValueError, match=reason):
        server_app.app(FakeGrid(10), context(config))
    assert not (tmp_path / "run").exists()


def test_a_node_must_be_one_of_the_clients():
    for client, clients in ((10, 10), (0, 9), (None, 10)):
        with pytest.raises(ValueError, match="start as many SuperNodes"):
            client_app.identify(context(run_config(clients=10), client, clients), 0)


def test_the_number_of_clients_can_be_seen_in_simulations():
    assert plan_of(with_clients(run_config(), 10)).byzantine == 2
    assert plan_of(with_clients(run_config(byzantine="10%"), 150)).tolerated >= 1
    plan = plan_of(with_clients(run_config(), 2))  # what Flower simulates if it is told nothing
    assert (plan.byzantine, plan.sampled) == (0, 2)


def test_with_two_nodes_the_server_says_that_none_can_be_tolerated(tmp_path, caplog):
    config = run_config(**{"folder": str(tmp_path / "run"), "num-server-rounds": 1})
    server_app.app(app_grid(config, 2), context(config))
    assert "With 2 nodes no Byzantine client can be tolerated" in caplog.text
    assert read(tmp_path / "run").finished


def test_attackers_are_named_with_their_attacks():
    config = run_config(attackers="0, 3,7", attack="raise; nan;silent")
    assert attacks_of(config, 10) == {0: "raise", 3: "nan", 7: "silent"}
    assert attacks_of(run_config(attackers="4"), 10) == {4: "sign_flip"}
    assert attacks_of(run_config(attackers=4), 10) == {4: "sign_flip"}
    assert attacks_of(run_config(), 10) == {}
    assert [attack_in_round("nan / wrong-shape", round) for round in range(3)] == [
        "nan",
        "wrong-shape",
        "nan",
    ]
    assert str(parse_lone_attack("sign_flip")) == "sign_flip(own=True)"


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's own
def test_the_app_is_small():
    fab = build_fab_from_disk(APP)
    assert len(fab) < 100_000  # Flower takes up to 10 MB
