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


RULE = fedro.parse_rule("nnm | trimmed_mean")
CLIENTS = np.arange(12) + 5  # row i is from client i + 5


def test_flagged_clients_and_copies_are_left_out():
    x = updates()
    x[[2, 9]] = x[0].clone()
    rows, reasons = exclude(x, np.arange(12), CLIENTS, evidence_with([8, 12]), RULE, 2)
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
    rows, _ = exclude(x, np.arange(12), CLIENTS, Evidence(), RULE, 2)
    kept = [row for row in (2, 5, 9) if row in rows]
    assert len(kept) == 1
    assert torch.equal(x[kept[0]], x[5])


@pytest.mark.parametrize(("tolerated", "left"), [(5, 11), (4, 9), (3, 8), (0, 8)])
def test_exclusion_yields_before_the_guarantee(tolerated, left):
    """The most extreme are left out first."""
    flagged = [6, 8, 10, 12]  # of slopes −1 to −4
    rows, reasons = exclude(
        updates(), np.arange(12), CLIENTS, evidence_with(flagged), RULE, tolerated
    )
    assert rows.size == left >= 2 * tolerated + 1
    assert list(reasons) == [12, 10, 8, 6][: 12 - left]


def test_a_rule_that_needs_more_rows_keeps_them():
    rows, reasons = exclude(
        updates(), np.arange(12), CLIENTS, evidence_with([6, 8, 10]), fedro.parse_rule("bulyan"), 2
    )
    assert (rows.size, list(reasons)) == (11, [10])  # Bulyan needs 4b̂ + 3


def test_unknown_clients_and_no_room_are_fine():
    few = evidence_with([1], clients=6)
    rows, reasons = exclude(updates(), np.arange(12), CLIENTS, few, RULE, 2)
    assert (rows.size, reasons) == (12, {})
    rows, reasons = exclude(updates(), np.arange(4), CLIENTS, evidence_with([5, 6]), RULE, 2)
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
    left_out = 0
    for round_ in rounds[12:]:
        liars = bad & set(round_.sampled.tolist())
        assert set(round_.excluded) in (liars, set())  # they may be so far off that they can stay
        left_out += set(round_.excluded) == liars
        assert set(round_.evidence.clients.tolist()) == set(round_.sampled.tolist())
    assert left_out > 9
    used = [round_.kappa_proved for round_ in rounds if round_.excluded]
    assert min(used) > setup.rule.kappa(30, 10)  # fewer rows, the same tolerance


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


def test_suspects_that_are_far_from_all_others_stay():
    """The rule ignores them; if they were left out, it would ignore honest rows instead."""
    x = updates()
    x[3] = 100.0  # client 8, flagged
    x[[6, 7, 9]] = -1e30  # clients 11, 12 and 14 send the same
    rows, reasons = exclude(x, np.arange(12), CLIENTS, evidence_with([8, 15]), RULE, 2)
    assert rows.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11]
    assert reasons == {15: "flagged since round 7"}


def test_rows_far_away_do_not_move_the_center():
    x = updates()
    x[0] = 1e20  # not flagged yet
    x[3] = 10.0
    rows, reasons = exclude(x, np.arange(12), CLIENTS, evidence_with([8]), RULE, 2)
    assert list(reasons) == [8]  # one row is further away than it, so it counts as near
    x[0] = x[1] / 2
    rows, reasons = exclude(x, np.arange(12), CLIENTS, evidence_with([8]), RULE, 2)
    assert not reasons
    assert rows.size == 12
