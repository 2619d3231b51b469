"""Whose rows are left out, and when exclusion yields."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import fedro
from fedro.server.evidence import Evidence
from fedro.server.exclusion import exclude
from fedro.simulation.preparation import prepare


def evidence_with(flagged, clients=20):
    since = np.full(clients, -1)
    since[list(flagged)] = 7
    total = np.zeros((7, clients))
    total[1:3] = 1.0
    total[2, list(flagged)] = -np.arange(1.0, len(flagged) + 1)  # slopes −1, −2, …
    return replace(Evidence(), rounds=30, total=total, flagged=since.astype(np.int64))


def updates(n=12):
    return torch.tensor(np.random.default_rng(0).normal(size=(n, 50)), dtype=torch.float32)


CLIENTS = np.arange(12) + 5  # row i is from client i + 5


def test_flagged_clients_and_copies_are_left_out():
    x = updates()
    x[[2, 9]] = x[0].clone()
    rows, reasons = exclude(x, np.arange(12), CLIENTS, evidence_with([8, 12]), 2)
    assert rows.tolist() == [0, 1, 4, 5, 6, 8, 10, 11]
    assert reasons == {
        7: "a copy of client 5",
        14: "a copy of client 5",
        12: "flagged since round 7",
        8: "flagged since round 7",
    }


def test_one_row_of_a_group_of_copies_stays_whoever_is_copied():
    x = updates()
    x[[2, 9]] = x[5].clone()  # the victim is client 10
    rows, _ = exclude(x, np.arange(12), CLIENTS, Evidence(), 2)
    kept = [row for row in (2, 5, 9) if row in rows]
    assert len(kept) == 1
    assert torch.equal(x[kept[0]], x[5])


@pytest.mark.parametrize(("tolerated", "left"), [(5, 11), (4, 9), (3, 8), (0, 8)])
def test_exclusion_yields_before_the_guarantee(tolerated, left):
    """The most extreme are left out first."""
    flagged = [6, 8, 10, 12]  # of slopes −1 to −4
    rows, reasons = exclude(updates(), np.arange(12), CLIENTS, evidence_with(flagged), tolerated)
    assert rows.size == left >= 2 * tolerated + 1
    assert list(reasons) == [12, 10, 8, 6][: 12 - left]


def test_unknown_clients_and_no_room_are_fine():
    few = evidence_with([1], clients=6)
    rows, reasons = exclude(updates(), np.arange(12), CLIENTS, few, 2)
    assert (rows.size, reasons) == (12, {})
    rows, reasons = exclude(updates(), np.arange(4), CLIENTS, evidence_with([5, 6]), 2)
    assert (rows.size, reasons) == (4, {})


def experiment(**changes):
    keys = {
        "dataset": "digits",
        "clients": 50,
        "byzantine": 10,
        "attack": "sign_flip",
        "partition": "dirichlet(alpha=1.0)",
        "model": "mlp(hidden=32)",
        "rounds": 30,
        "sampled": 30,
        "tolerated": 10,
        "exclude": "evidence",
    }
    return fedro.Experiment(**{**keys, **changes})


@pytest.mark.slow
def test_a_run_names_the_liars_and_leaves_them_out():
    setup = prepare(experiment())
    rounds = list(fedro.run(setup))
    bad = set(np.flatnonzero(setup.byzantine).tolist())
    assert set(rounds[-1].suspects) == bad
    for round_ in rounds[12:]:
        assert set(round_.excluded) == bad & set(round_.sampled.tolist())
        assert set(round_.evidence.clients.tolist()) == set(round_.sampled.tolist())
    assert rounds[-1].kappa_proved > rounds[0].kappa_proved or rounds[0].excluded


@pytest.mark.slow
@pytest.mark.parametrize("exclude_", ["none", "evidence"])
def test_a_resumed_run_has_the_same_evidence(exclude_):
    setup = prepare(experiment(exclude=exclude_, rounds=24))
    whole = list(fedro.run(setup))
    *_, half = itertools_take(fedro.run(setup), 13)
    rest = list(fedro.run(setup, state=half.state))
    lines = [r.as_dict() for r in whole[13:]]
    again = [r.as_dict() for r in rest]
    for line in (*lines, *again):
        del line["seconds"]
    assert lines == again


@pytest.mark.slow
def test_no_attack_nobody_is_left_out():
    rounds = list(fedro.run(experiment(byzantine=0, attack="none", rounds=40)))
    assert all(not r.excluded and not r.suspects for r in rounds)
    plain = list(fedro.run(experiment(byzantine=0, attack="none", rounds=40, exclude="none")))
    assert torch.equal(rounds[-1].state.model, plain[-1].state.model)


def itertools_take(rounds, number):
    return [round_ for round_, _ in zip(rounds, range(number), strict=False)]
