"""One simulated round: what it does, and what it reports."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedro.server import State
from fedro.simulation.experiment import Experiment
from fedro.simulation.loop import run
from fedro.simulation.preparation import prepare
from fedro.simulation.round import simulate_round

pytestmark = pytest.mark.slow  # its tests train models or start processes

SMALL = Experiment(
    dataset="digits",
    clients=12,
    model="mlp(hidden=16)",
    sampled=5,
    tolerated=0,
    rule="mean",
    rounds=4,
    local_steps=3,
    batch_size=8,
    evaluate_every=2,
)


def test_a_round_reports_what_happened():
    experiment = SMALL.replace(
        byzantine=4, attack="nan", rule="trimmed_mean", sampled=9, tolerated=2, rounds=6
    )
    setup = prepare(experiment)
    bad = set(np.flatnonzero(setup.byzantine))
    assert len(bad) == 4
    for round_ in run(setup):
        assert set(round_.byzantine) == set(round_.sampled) & bad == set(round_.rejected)
        assert set(round_.rejected.values()) == {"holds NaN or Inf"}
        received = 9 - len(round_.byzantine)
        if received > 4:
            assert round_.void is None
            assert round_.kappa_seen <= round_.kappa_proved == pytest.approx(2 / (received - 4))
            assert round_.error == pytest.approx(round_.kappa_seen * round_.variance)
        line = round_.as_dict()
        assert line["round"] == round_.round
        assert ("score" in line) == ((round_.round + 1) % 2 == 0)
        assert set(line["seconds"]) == {"train", "attack", "aggregate", "measure", "evaluate"}
    assert round_.final == round_.score
    assert 0 <= round_.score.worst <= round_.score.clients <= 1


def test_silent_clients_are_missing_and_may_make_a_round_void():
    experiment = SMALL.replace(
        byzantine=5, attack="silent", rule="trimmed_mean", sampled=7, tolerated=2, rounds=12
    )
    before = prepare(experiment).flat.vector
    seen = set()
    for round_ in run(experiment):
        assert set(round_.missing) == set(round_.byzantine)
        void = 7 - len(round_.byzantine) <= 4
        assert (round_.void is not None) == void
        assert torch.equal(round_.state.model, before) == void
        before = round_.state.model
        seen.add(void)
    assert seen == {True, False}


@pytest.mark.parametrize(("at", "more"), [("more", 1), ("reach", 0)])
def test_takeover_in_both_readings(at, more):
    attack = f"sign_flip | takeover(at='{at}')"
    experiment = SMALL.replace(
        byzantine=4, attack=attack, rule="trimmed_mean", sampled=5, tolerated=1, rounds=12
    )
    seen = set()
    for round_ in run(experiment):
        seized = len(round_.byzantine) >= 1 + more
        assert round_.takeover == seized
        assert (round_.state.model == 0).all().item() == seized
        seen.add(seized)
    assert seen == {True, False}


def test_all_sampled_clients_bad_is_a_round_like_another():
    experiment = SMALL.replace(byzantine=11, attack="alie", sampled=1, rounds=3)
    for round_ in run(experiment):
        assert round_.train_loss is None or len(round_.byzantine) == 0
        assert round_.score is None or round_.score.accuracy is not None


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["fltrust", "monna"])
def test_rules_with_a_root_set_get_the_servers_own_update(rule):
    experiment = SMALL.replace(byzantine=3, attack="sign_flip", rule=rule, tolerated=2, root=60)
    whole = list(run(experiment.replace(rounds=30, client_lr=0.5)))
    assert whole[-1].score.accuracy > 0.5
    again = list(run(experiment.replace(rounds=3, root="digits")))
    assert again[-1].void is None


def test_one_round_does_not_change_the_state_it_starts_from():
    setup = prepare(SMALL.replace(byzantine=2, attack="mimic", rule="median", tolerated=2))
    state = State(0, setup.flat.vector.clone())
    kept = replace(state, model=state.model.clone())
    with setup.make_engine() as engine:
        simulate_round(setup, engine, state)
    assert torch.equal(state.model, kept.model)
    assert state.memory == {}


@pytest.mark.slow
def test_clip_step_survives_the_round_that_the_planners_attacker_waits_for():
    # seed 3 draws more than three bad clients in rounds 3 and 15; the run ends with the latter
    experiment = Experiment(
        dataset="digits",
        clients=50,
        model="mlp(hidden=32)",
        byzantine=10,
        sampled=9,
        tolerated=3,
        attack="ambush",
        rounds=16,
        local_steps=10,
        batch_size=16,
        client_lr=0.1,
        evaluate_every=16,
        seed=3,
    )
    *_, lost = run(experiment.replace(rule="nnm | trimmed_mean"))
    *_, kept = run(experiment.replace(rule="clip_step | nnm | trimmed_mean"))
    assert len(lost.byzantine) > 3
    assert lost.score.accuracy < 0.3
    assert kept.score.accuracy > 0.6


def test_losses_that_are_not_finite_are_counted():
    experiment = SMALL.replace(client_lr=1e30, byzantine=2, rule="median", tolerated=2)
    rounds = list(run(experiment))
    for round_ in rounds:
        assert round_.diverged == 5 - len(round_.byzantine) == round_.as_dict()["diverged"]
        assert round_.void is not None
    assert [round_.problem is not None for round_ in rounds] == [False, False, False, True]
    assert "client_lr=1e+30 is too large" in round_.problem == round_.as_dict()["problem"]
    for round_ in run(SMALL):
        assert (round_.diverged, round_.problem) == (0, None)
        assert "problem" not in round_.as_dict()
