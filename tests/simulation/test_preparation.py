"""`prepare`: it chooses what is open, and what cannot work fails before training."""

import re

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from fedro.attacks import alie
from fedro.data import from_clients
from fedro.rules import nnm, trimmed_mean
from fedro.simulation.experiment import Experiment, ExperimentError
from fedro.simulation.loop import run
from fedro.simulation.preparation import prepare
from fedro.simulation.terminal import describe

BASE = {"clients": 8, "sampled": 5, "tolerated": 0, "rule": "mean", "rounds": 3, "batch_size": 8}


def experiment(**changes):
    return Experiment(**{**BASE, **changes})


def build_mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def frozen_first():
    net = build_mlp()
    net[1].requires_grad_(False)
    return net


BATCHNORM = nn.Sequential(
    nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10)
)


def line(shape):
    """y = x·(1, 2, 3, 4), as targets of some shape."""
    generator = torch.Generator().manual_seed(0)
    clients = []
    for _ in range(8):
        x = torch.randn(40, 4, generator=generator)
        y = (x @ torch.tensor([1.0, 2, 3, 4])).reshape(shape)
        clients.append((x[:30], y[:30], x[30:], y[30:]))
    return from_clients(clients)


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), {}, "a trial step of the model with 8"),
        (nn.Sequential(nn.Flatten(), nn.Linear(63, 10)), {}, "shape (1, 8, 8) failed"),
        (BATCHNORM, {"batch_size": 1}, "Expected more than 1 value per channel"),
        (nn.Sequential(nn.Flatten(), nn.LazyLinear(10)), {}, "lazy layers"),
        (build_mlp(), {"rule": "fltrust", "root": "synthetic(dim=5)"}, "shape (5,) failed"),
        (build_mlp(), {"clients": 9}, None),
    ],
)
def test_what_cannot_work_is_said_before_training(model, changes, message):
    if message is None:
        setup = prepare(experiment())
        with pytest.raises(ExperimentError, match="clients=9, but the given federation has 8"):
            prepare(experiment(**changes), federation=setup.federation)
        return
    with pytest.raises(ValueError, match=re.escape(message)):
        run(experiment(**changes), model=model)


def test_data_without_tests_is_refused_at_once():
    x, y = torch.rand(10, 4), torch.arange(10) % 2
    data = from_clients([(x, y, None, None)] * 8)
    with pytest.raises(ExperimentError, match="no honest client has test data"):
        prepare(experiment(model="logistic"), federation=data)


def test_another_model_or_other_data_is_another_run(tmp_path):
    def fingerprint(**objects):
        return prepare(experiment(model="logistic"), **objects).fingerprint()

    data = [line((40,)) for _ in range(2)]
    x = np.zeros((9, 4), np.float32)
    other = from_clients([(x, np.arange(9) % 2, x, np.arange(9) % 2)] * 8)
    assert fingerprint(federation=data[0]) == fingerprint(federation=data[1])
    assert fingerprint(federation=data[0])["data"] != fingerprint(federation=other)["data"]
    models = [fingerprint(model=build_mlp), fingerprint(model=lambda: build_mlp().requires_grad_())]
    assert models[0] == models[1]
    assert fingerprint(model=frozen_first)["model"] != models[0]["model"]


def test_without_byzantine_clients_ten_are_sampled():
    assert prepare(Experiment(clients=30)).sampled == 10
    assert prepare(Experiment(clients=4)).sampled == 4


def test_rules_and_attacks_may_be_objects():
    given = experiment(
        byzantine=2, rule=nnm() | trimmed_mean(), attack=alie(z=1.5), sampled=8, tolerated=2
    )
    assert (given.rule, given.attack) == ("nnm | trimmed_mean", "alie(z=1.5)")
    assert prepare(given).rule == nnm() | trimmed_mean()
    with pytest.raises(ExperimentError, match=r"'trimmed_mean\(b=1\)' names b: leave it out"):
        prepare(experiment(rule=trimmed_mean(b=1)))


def test_byzantine_clients_are_drawn_from_the_seed():
    masks = [
        prepare(Experiment(clients=12, byzantine=3, rounds=4, seed=s)).byzantine for s in range(20)
    ]
    assert {int(mask.sum()) for mask in masks} == {3}
    assert len({tuple(mask) for mask in masks}) > 10


def test_the_box_of_a_run_says_task_classes_and_examples():
    def text(setup):
        console = Console(width=200)
        with console.capture() as captured:
            console.print(describe(setup))
        return captured.get()

    digits = text(prepare(experiment()))
    assert "classification with 10 classes, 1,437 training examples (179 to 180 a client)" in digits
    assert "and 360 test examples (45 a client)" in digits
    numbers = text(prepare(experiment(model="logistic"), federation=line((40,))))
    assert "regression, 240 training examples (30 a client) and 80 test" in numbers
