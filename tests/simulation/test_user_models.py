"""Models as users have them: buffers, frozen layers, randomness, regression."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from engine_cases import Counting, Odd
from fedro.data import from_clients
from fedro.models.convolution import Conv2d
from fedro.rules import RULES
from fedro.simulation.experiment import Experiment, ExperimentError
from fedro.simulation.loop import run
from fedro.simulation.preparation import prepare

pytestmark = pytest.mark.slow  # its tests train models or start processes

BASE = {"clients": 8, "sampled": 5, "tolerated": 0, "rule": "mean", "rounds": 3, "batch_size": 8}


def experiment(**changes):
    return Experiment(**{**BASE, **changes})


def last(given, **objects):
    return list(run(given, **objects))[-1]


class Masked(nn.Module):
    """A buffer with infinities, as attention masks have."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.full((64,), -torch.inf).where(torch.arange(64) > 60, 0))

    def forward(self, x):
        return (x + self.mask).clamp(min=-1)


class Functional(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return self.change(self, x)


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        return x


def test_a_module_or_a_function_that_makes_one_is_seeded_and_left_alone():
    net = build_mlp()
    before = [p.detach().clone() for p in net.parameters()]
    for model in (net, build_mlp, lambda: net):
        first, again = (last(experiment(), model=model) for _ in range(2))
        assert torch.equal(first.state.model, again.state.model)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    seeds = [last(experiment(seed=s, rounds=1), model=build_mlp).state.model for s in (0, 1)]
    assert not torch.equal(*seeds)


def build_mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


@pytest.mark.parametrize(
    "model",
    [Odd(Counting()), Odd(nn.BatchNorm1d(64, momentum=None))],
    ids=["frozen parameters and integer buffers", "BatchNorm that counts its batches"],
)
def test_what_is_not_in_the_vector_does_not_leak_from_client_to_client(model):
    whole = list(run(experiment(rounds=4), model=model))
    for round_ in whole[:3]:
        rest = list(run(experiment(rounds=4), model=model, state=round_.state))
        assert torch.equal(rest[-1].state.model, whole[-1].state.model)


@pytest.mark.slow
def test_nothing_leaks_from_client_to_client_in_worker_processes():
    name = {"model": "engine_cases:counting", "engine": "workers"}
    one, three = (last(experiment(**name, workers=w)).state.model for w in (1, 3))
    assert torch.equal(one, three)


def test_infinite_buffers_do_not_make_replies_unusable():
    round_ = last(experiment(), model=Odd(Masked()))
    assert round_.rejected == {}
    assert round_.void is None


@pytest.mark.parametrize(
    "change",
    [
        lambda self, x: F.dropout(x, 0.1, self.training),
        lambda self, x: x if x.mean() > 0 else -x,
        lambda self, x: x + 0 * torch.rand(1),
    ],
    ids=["dropout", "branch", "dice"],
)
def test_auto_does_not_batch_what_cannot_be_batched(change):
    model = Odd(Functional(change))
    assert prepare(experiment(), model=model).engine_kind == "inline"
    first, again = (last(experiment(), model=model).state.model for _ in range(2))
    assert torch.equal(first, again)
    with pytest.raises(ExperimentError, match="engine='batched' cannot train this model"):
        list(run(experiment(engine="batched"), model=model))


def test_auto_does_not_batch_the_fast_convolution():
    layers = [Conv2d(1, 64, 3), Conv2d(64, 64, 3), nn.Flatten(), nn.Linear(64 * 16, 10)]
    assert prepare(experiment(rounds=1), model=nn.Sequential(*layers)).engine_kind == "inline"


def test_parameters_without_a_part_in_the_loss_decay_in_every_engine():
    model = Odd(Unused())
    models = [
        last(experiment(l2=0.1, rounds=1, engine=kind), model=model).state.model
        for kind in ("inline", "batched")
    ]
    torch.testing.assert_close(*models, rtol=1e-5, atol=1e-6)


def line(shape):
    """y = x·(1, 2, 3, 4), as targets of some shape."""
    generator = torch.Generator().manual_seed(0)
    clients = []
    for _ in range(8):
        x = torch.randn(40, 4, generator=generator)
        y = (x @ torch.tensor([1.0, 2, 3, 4])).reshape(shape)
        clients.append((x[:30], y[:30], x[30:], y[30:]))
    return from_clients(clients)


@pytest.mark.parametrize("shape", [(40,), (40, 1)])
@pytest.mark.parametrize("model", [None, nn.Linear(4, 1)], ids=["by name", "object"])
def test_regression(shape, model):
    given = experiment(rounds=100, client_lr=0.05, model="logistic")
    round_ = last(given, federation=line(shape), model=model)
    assert round_.final.loss < 1e-3
    assert round_.final.accuracy is None


BATCHNORM = nn.Sequential(
    nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10)
)


@pytest.mark.parametrize("rule", [r for r in RULES if not RULES[r].mixer and r != "mean"])
def test_statistics_are_protected_by_every_rule(rule):
    options = {"norm_clip": "(limit=1.0)", "centered_clipping": "(tau=1.0)"}.get(rule, "")
    if rule == "norm_clip":
        parameters = list(RULES[rule].options)
        options = f"({parameters[0]}=1.0)"
    given = experiment(
        byzantine=1,
        attack="huge",
        rule=rule + options,
        sampled=8,
        tolerated=1,
        root=40 if RULES[rule].reference == "needed" else None,
    )
    for round_ in run(given, model=BATCHNORM):
        assert round_.void is None
        statistics = round_.state.model[-16:]
        assert statistics.abs().max() < 100


def test_a_state_of_another_model_is_refused():
    state = last(experiment(model="logistic")).state
    with pytest.raises(ValueError, match="650 numbers, but the model of this run has 4810"):
        run(experiment(), state=state)
