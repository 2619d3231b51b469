"""The training loop: it is FedAvg without attackers, and the paper's statements hold in it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedro.data import make_federation
from fedro.planning import theory
from fedro.server import State
from fedro.simulation.experiment import Experiment
from fedro.simulation.loop import run
from fedro.simulation.preparation import prepare
from fedro.simulation.setup import draw_batches

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


def lines(rounds):
    """The lines that are recorded of rounds, without the times."""
    return [{k: v for k, v in round_.as_dict().items() if k != "seconds"} for round_ in rounds]


def fedavg(experiment):
    """FedAvg in ten lines of plain PyTorch, from the same streams."""
    from fedro.common.streams import stream
    from fedro.models import build

    federation = make_federation("digits", clients=experiment.clients, seed=experiment.seed)
    net = build(experiment.model, federation.shape, 10, experiment.seed)
    x = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
    for t in range(experiment.rounds):
        ids = stream(experiment.seed, "sample", t).choice(12, size=5, replace=False)
        updates = []
        for i in ids:
            torch.nn.utils.vector_to_parameters(x.clone(), net.parameters())
            sgd = torch.optim.SGD(net.parameters(), lr=experiment.client_lr)
            rng = stream(experiment.seed, "batches", t, i)
            for a, b in zip(*draw_batches(federation.train(int(i)), rng, 3, 8), strict=True):
                sgd.zero_grad()
                F.cross_entropy(net(a), b).backward()
                sgd.step()
            updates.append(torch.nn.utils.parameters_to_vector(net.parameters()).detach() - x)
        x = x + torch.stack(updates).mean(0)
    return x


@pytest.mark.parametrize("engine", ["inline", "batched"])
def test_without_bad_clients_and_with_the_mean_it_is_fedavg(engine):
    model = list(run(SMALL.replace(engine=engine)))[-1].state.model
    expected = fedavg(SMALL)
    moved = (expected - prepare(SMALL).flat.vector).norm()
    assert (model - expected).norm() / moved < 1e-6
    assert (model - expected).abs().max() <= 8 * torch.finfo(torch.float32).eps


def test_the_same_experiment_gives_the_same_bits_and_another_seed_does_not():
    attacked = SMALL.replace(byzantine=3, attack="gauss(std=1.0)", rule="median", tolerated=2)
    first, again = list(run(attacked)), list(run(attacked))
    assert lines(first) == lines(again)
    assert torch.equal(first[-1].state.model, again[-1].state.model)
    other = list(run(attacked.replace(seed=1)))
    assert not torch.equal(first[-1].state.model, other[-1].state.model)


@pytest.mark.parametrize("attack", ["mimic(warmup=2)", "alie", "label_flip", "silent"])
@pytest.mark.parametrize("rule", ["nnm | trimmed_mean", "centered_clipping(tau=0.5)"])
def test_a_run_goes_on_from_any_round_to_the_same_bits(attack, rule):
    experiment = SMALL.replace(
        byzantine=2, attack=attack, rule=rule, tolerated=1, output="random", momentum=0.5
    )
    whole = list(run(experiment))
    for round_ in whole[:-1]:
        saved = State.from_tensors(round_.state.round, round_.state.tensors())
        rest = list(run(experiment, state=saved))
        assert lines(rest) == lines(whole[round_.round + 1 :])
        assert torch.equal(rest[-1].state.model, whole[-1].state.model)
        assert torch.equal(rest[-1].state.chosen, whole[-1].state.chosen)


@pytest.mark.slow
def test_the_papers_output_is_a_uniformly_drawn_iterate():
    drawn = []
    for seed in range(8):
        experiment = SMALL.replace(output="random", seed=seed, local_steps=1, evaluate_every=100)
        whole = list(run(experiment))
        iterates = [prepare(experiment).flat.vector, *(round_.state.model for round_ in whole)]
        chosen = whole[-1].state.chosen
        drawn.append([torch.equal(chosen, iterate) for iterate in iterates].index(True))
    assert set(drawn) <= set(range(4))
    assert len(set(drawn)) >= 3
    assert whole[-1].final != whole[-1].score


# The synthetic problem: F_i(x) = ½‖x − c_i‖², so L = 1, and σ and ζ are known.


def synthetic(sigma, zeta, **options):
    defaults = {
        "clients": 30,
        "byzantine": 6,
        "attack": "sign_flip",
        "rule": "trimmed_mean",
        "sampled": 15,
        "tolerated": 6,
        "rounds": 40,
        "local_steps": 5,
        "batch_size": 1,
        "client_lr": 1 / (16 * 5),
        "evaluate_every": 1000,
    }
    text = f"synthetic(dim=10, samples=40, sigma={sigma}, zeta={zeta})"
    return Experiment(dataset=text, **{**defaults, **options})


def honest_problem(setup):
    """The honest clients' optimum, and their ζ²."""
    centers = torch.as_tensor(setup.federation.problem["centers"])[~setup.byzantine].double()
    optimum = centers.mean(0)
    return optimum, float((centers - optimum).square().sum(1).mean())


@pytest.mark.parametrize("steps", [1, 5, 20])
@pytest.mark.parametrize(("sigma", "zeta"), [(1.0, 0.1), (0.1, 1.0), (1.0, 1.0)])
def test_the_drift_lemma_and_the_kappa_inequality_hold_in_every_round(
    sigma, zeta, steps, record_property
):
    rate = 1 / (16 * steps)
    setup = prepare(synthetic(sigma, zeta, local_steps=steps, client_lr=rate))
    _, zeta_sq = honest_problem(setup)
    bound = theory.drift_bound(steps, rate, sigma**2, zeta_sq)
    drifts, kappas = [], []
    for round_ in run(setup):
        assert len(round_.byzantine) <= setup.tolerated
        drifts.append(round_.variance / bound)
        kappas.append(round_.kappa_seen / round_.kappa_proved)
    record_property("drift measured/bound", max(drifts))
    record_property("kappa seen/proved", max(kappas))
    assert 0.01 < max(drifts) <= 1
    assert 0.001 < max(kappas) <= 1 + 1e-6


def test_plain_averaging_violates_the_kappa_inequality():
    proved = prepare(synthetic(1.0, 1.0)).rule.kappa(15, 6)
    broken = run(synthetic(1.0, 1.0, rule="mean", attack="foe(tau=100.0)", rounds=3))
    assert max(round_.kappa_seen for round_ in broken) > proved


def final_error(sigma, zeta, seeds, **options):
    """Mean of ‖x − x*‖² over the last rounds and seeds, each seed paired with itself."""
    errors = []
    for seed in range(seeds):
        setup = prepare(synthetic(sigma, zeta, seed=seed, rounds=60, **options))
        optimum, _ = honest_problem(setup)
        models = [round_.state.model.double() for round_ in run(setup)][-20:]
        errors.append(np.mean([float((model - optimum).square().sum()) for model in models]))
    return np.array(errors)


@pytest.mark.slow
def test_more_local_steps_help_against_noise_but_not_against_difference():
    """γ_c = c/K: the error falls with K where σ² ≫ ζ², and need not where ζ² ≫ σ²."""
    noisy = [final_error(2.0, 0.05, 4, local_steps=k, client_lr=0.5 / k) for k in (1, 4, 16)]
    assert (noisy[0] > 1.5 * noisy[1]).all()
    assert (noisy[1] > 1.5 * noisy[2]).all()
    different = [final_error(0.05, 2.0, 4, local_steps=k, client_lr=0.5 / k) for k in (1, 16)]
    assert (different[1] > 0.5 * different[0]).all()


@pytest.mark.slow
def test_the_error_falls_with_the_share_that_is_bad_and_tolerated():
    options = {"clients": 15, "sampled": 15, "local_steps": 4, "client_lr": 0.125}
    errors = [
        final_error(2.0, 0.05, 4, attack="alie(z=1.5)", byzantine=b, tolerated=b, **options)
        for b in (6, 3, 1)
    ]
    assert (errors[0] > 1.3 * errors[1]).all()
    assert (errors[1] > 1.3 * errors[2]).all()
