"""Models and data as people really have them: they work, or it is said why not before training."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedro.data import from_clients
from fedro.models.convolution import Conv2d
from fedro.rules import RULES
from fedro.simulation.experiment import Experiment, ExperimentError
from fedro.simulation.loop import run
from fedro.simulation.recording import open_folder, recorded_run, run_into
from fedro.simulation.setup import prepare

BASE = {"clients": 8, "sampled": 5, "tolerated": 0, "rule": "mean", "rounds": 3, "batch_size": 8}


def experiment(**changes):
    return Experiment(**{**BASE, **changes})


def last(given, **objects):
    return list(run(given, **objects))[-1]


class Odd(nn.Module):
    """A classifier of digits with something odd inside."""

    def __init__(self, odd):
        super().__init__()
        self.odd, self.last = odd, nn.Linear(64, 10)

    def forward(self, x):
        return self.last(self.odd(x.flatten(1)))


class Counting(nn.Module):
    """Its frozen parameter and its integer buffer change in training."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Parameter(torch.zeros(64), requires_grad=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.seen += 1
            self.frozen.data += 0.1 * self.seen
        return x + self.frozen


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


def frozen_first():
    net = build_mlp()
    net[1].requires_grad_(False)
    return net


@pytest.mark.parametrize("engine", ["inline", "batched"])
def test_the_model_that_is_saved_is_the_model_that_was_scored(tmp_path, engine):
    from safetensors.torch import load_file

    given = experiment(rounds=30, client_lr=0.5, engine=engine)
    final = list(run_into(tmp_path / "run", given, model=frozen_first))[-1]
    setup = prepare(given, model=frozen_first)
    module = setup.module(final.state)
    (x, y), _ = setup.test
    assert (module(x).argmax(1) == y).float().mean().item() == pytest.approx(final.final.accuracy)
    assert final.final.accuracy > 0.4
    saved = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(value, saved[key]) for key, value in module.state_dict().items())
    assert list(run_into(tmp_path / "run", given, model=frozen_first, resume=True)) == []


def test_a_setup_can_be_used_again(tmp_path):
    setup = prepare(experiment())
    losses = []
    for name in "ab":
        with open_folder(setup, tmp_path / name, resume=False) as folder:
            losses.append([done.train_loss for done in recorded_run(setup, folder)])
    losses.append([done.train_loss for done in run(setup)])
    assert losses[0] == losses[1] == losses[2]


@pytest.mark.parametrize("engine", ["inline", "workers"])
def test_what_is_not_in_the_vector_does_not_leak_from_client_to_client(engine):
    """Frozen parameters, integer buffers, and a BatchNorm that counts its batches."""
    for model in (Odd(Counting()), Odd(nn.BatchNorm1d(64, momentum=None))):
        given = experiment(rounds=4)
        whole = list(run(given, model=model))
        for done in whole[:3]:
            rest = list(run(given, model=model, state=done.state))
            assert torch.equal(rest[-1].state.model, whole[-1].state.model)
    if engine == "workers":
        name = {"model": "test_odd_models:counting", "engine": "workers"}
        one, three = (last(experiment(**name, workers=w)).state.model for w in (1, 3))
        assert torch.equal(one, three)


def counting():
    return Odd(nn.Sequential(Counting(), nn.BatchNorm1d(64, momentum=None)))


def test_infinite_buffers_do_not_make_replies_unusable():
    done = last(experiment(), model=Odd(Masked()))
    assert done.rejected == {}
    assert done.void is None


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
    done = last(given, federation=line(shape), model=model)
    assert done.final.loss < 1e-3
    assert done.final.accuracy is None


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
    for done in run(given, model=BATCHNORM):
        assert done.void is None
        statistics = done.state.model[-16:]
        assert statistics.abs().max() < 100


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
        with pytest.raises(ExperimentError, match="clients=9, but the federation given has 8"):
            prepare(experiment(**changes), federation=setup.federation)
        return
    with pytest.raises(ValueError, match=re.escape(message)):
        run(experiment(**changes), model=model)


def test_data_without_tests_is_refused_at_once():
    x, y = torch.rand(10, 4), torch.arange(10) % 2
    data = from_clients([(x, y, None, None)] * 8)
    with pytest.raises(ExperimentError, match="no honest client has test data"):
        prepare(experiment(model="logistic"), federation=data)


def test_a_state_of_another_model_is_refused():
    state = last(experiment(model="logistic")).state
    with pytest.raises(ValueError, match="650 numbers, and this one has 4810"):
        run(experiment(), state=state)


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


def test_without_bad_clients_a_few_are_sampled():
    assert prepare(Experiment(clients=30)).sampled == 10
    assert prepare(Experiment(clients=4)).sampled == 4
