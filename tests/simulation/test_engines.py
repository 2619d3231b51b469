"""The engines do the same work: to the bit where that is promised, and whatever happens."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from engine_cases import CLASSES, SHAPE, X, Y, job, setting
from fedro.models import FlatModel, build
from fedro.simulation.client import Recipe
from fedro.simulation.engines import choose, make_engine

HERE = ("workers", "batched", "inline")  # tests/flower has the one that can leave the machine


def train(kind, given, rows=None, data=(X, Y)):
    rows = range(given.rows) if rows is None else rows
    start = FlatModel(given.build()).vector.clone()
    with make_engine(kind, given) as engine:
        losses = engine.train(start, [job(row, data) for row in rows], lr=0.1)
        return engine.updates.clone(), losses, engine.evaluate(start, *data)


def reference(given, row, data=(X, Y), restraint=0.0):
    """FedAvg's client in ten lines of plain PyTorch; an attacker's loss has a second part."""
    model = given.build()
    start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=given.recipe.momentum, weight_decay=given.recipe.l2
    )
    for x, y in zip(*job(row, data).batches(), strict=True):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x if x.is_floating_point() else x / 255), y)
        gap = nn.utils.parameters_to_vector(model.parameters()) - start
        ((1 - restraint) * loss + restraint * gap.norm()).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach() - start


def close(a, b):
    return ((a - b).norm() / b.norm()).item() < 1e-5


@pytest.mark.parametrize("kind", HERE)
@pytest.mark.parametrize("bytes_", [False, True], ids=["floats", "bytes"])
def test_every_engine_agrees_with_plain_pytorch(kind, bytes_):
    data = ((X * 255).to(torch.uint8) if bytes_ else X, Y)
    given = setting(data=data, workers=1)
    updates, losses, (loss, right) = train(kind, given, data=data)
    for row in range(given.rows):
        assert close(updates[row], reference(given, row, data))
    assert sorted(losses) == list(range(given.rows))
    outputs = given.build()(data[0] if not bytes_ else data[0] / 255)
    torch.testing.assert_close(loss, F.cross_entropy(outputs, Y, reduction="none").detach())
    assert torch.equal(right, outputs.argmax(1) == Y)


@pytest.mark.parametrize("kind", HERE)
def test_every_engine_holds_back_those_who_want_it(kind):
    given, restraints = setting(workers=1), [0.0, 0.6, 0.05, 1.0, 0.0]
    start = FlatModel(given.build()).vector.clone()
    with make_engine(kind, given) as engine:
        jobs = [job(row, restraint=restraint) for row, restraint in enumerate(restraints)]
        losses = engine.train(start, jobs, lr=0.1)
        updates = engine.updates.clone()
    plain, expected, _ = train(kind, given)
    for row, restraint in enumerate(restraints):
        assert close(updates[row], reference(given, row, restraint=restraint))
        assert torch.equal(updates[row], plain[row]) == (restraint == 0.0)
    assert losses[0] == expected[0]
    assert updates[1].norm() < 0.5 * plain[1].norm()


@pytest.mark.slow
def test_same_bits_for_any_number_of_workers_with_batchnorm_and_dropout():
    x = torch.rand(200, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    found = []
    for kind, workers in (("workers", 1), ("workers", 3), ("inline", None)):
        given = setting("cifar_cnn", data=(x, Y), workers=workers)
        with one_thread():
            found.append(train(kind, given, data=(x, Y)))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
    assert torch.equal(found[0][0], found[2][0])  # one thread here, too
    statistics = found[0][0][:, FlatModel(given.build()).trained :]
    assert (statistics != 0).any(1).all()
    again = train("workers", given, data=(x, Y))
    assert torch.equal(again[0], found[0][0])


def test_a_clients_bits_do_not_depend_on_the_others():
    given = setting(rows=40)
    together, losses, _ = train("batched", given)
    for rows in ([7], [39, 7], range(3, 40)):
        updates, some, _ = train("batched", given, rows=rows)
        assert all(torch.equal(updates[row], together[row]) for row in rows)
        assert all(some[row] == losses[row] for row in rows)


def test_frozen_layers_are_respected_by_every_engine():
    name = "test_engine:half_frozen"
    found = {kind: train(kind, setting(name, workers=1))[0] for kind in HERE}
    assert found["inline"].shape == (5, 32 * 10 + 10)
    assert close(found["batched"], found["inline"])
    assert close(found["workers"], found["inline"])


def half_frozen(shape, classes):
    module = build("mlp(hidden=32)", shape, classes)
    module[1].requires_grad_(False)
    return module


class Noisy(nn.Module):
    """A user's model that prints, and fails or kills its process when a file says so."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, CLASSES)

    def forward(self, x):
        print("a user's print")
        if (order := os.environ.get("TEST_ENGINE_ORDER")) and os.path.exists(order):
            with open(order) as file:
                words = file.read().split()
            if words[0] == "once":
                os.unlink(order)
            if words[-1] == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ZeroDivisionError("the model's own error")
        return self.layer(x.flatten(1))


@pytest.fixture
def order(tmp_path, monkeypatch):
    path = tmp_path / "order"
    monkeypatch.setenv("TEST_ENGINE_ORDER", str(path))
    return path


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_the_bits_are_the_same(order):
    given = setting("test_engine:Noisy", workers=2)
    expected = train("workers", given)[0]
    order.write_text("once die")
    assert torch.equal(train("workers", given)[0], expected)
    assert not order.exists()


@pytest.mark.slow
def test_a_job_that_kills_every_worker_is_given_up(order):
    order.write_text("always die")
    with pytest.raises(ChildProcessError, match=r"3 worker processes died .* exit code -9"):
        train("workers", setting("test_engine:Noisy", workers=2))


def test_an_error_in_the_model_is_told_with_its_place(order):
    order.write_text("always fail")
    with pytest.raises(ChildProcessError, match=r"(?s)ZeroDivisionError: the model's own.*forward"):
        train("workers", setting("test_engine:Noisy", workers=1))


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed(tmp_path):
    program = (
        "import sys, time, test_engine as t\n"
        "from fedro.simulation.engines import make_engine\n"
        "with make_engine('workers', t.setting(workers=2)) as engine:\n"
        "    print(*[w.process.pid for w in engine.workers], flush=True)\n"
        "    time.sleep(60)\n"
    )
    folder = os.path.dirname(__file__)
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=folder, text=True
    )
    pids = [int(pid) for pid in child.stdout.readline().split()]
    assert len(pids) == 2
    child.kill()
    child.wait()
    child.stdout.close()
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_bfloat16_is_close_and_not_the_same():
    plain = train("inline", setting())[0]
    for kind in ("inline", "batched"):
        half = train(kind, setting(recipe=Recipe("classify", 0.5, 1e-3, "bfloat16")))[0]
        assert 1e-4 < ((half - plain).norm() / plain.norm()).item() < 0.05


def test_the_choice_depends_on_the_model():
    small, large = (FlatModel(build(f"mlp(hidden={h})", SHAPE, CLASSES)) for h in (8, 5000))
    cifar = FlatModel(build("cifar_cnn", (3, 8, 8), CLASSES))
    assert choose("auto", small, "cpu", True) == "batched"
    assert choose("auto", large, "cpu", True) == "workers"
    assert choose("auto", cifar, "cpu", True) == "workers"
    assert choose("auto", cifar, "cpu", False) == choose("auto", large, "cuda", True) == "inline"
    with pytest.raises(ValueError, match="cannot train a model with BatchNorm"):
        choose("batched", cifar, "cpu", True)
    with pytest.raises(ValueError, match="by its name"):
        choose("workers", small, "cpu", False)
    with pytest.raises(ValueError, match="on the CPU, not on cuda"):
        choose("workers", small, "cuda", True)
    with pytest.raises(ValueError, match="unknown engine 'worker': did you mean 'workers'"):
        choose("worker", small, "cpu", True)


class one_thread:  # noqa: N801
    def __enter__(self):
        self.before = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *_):
        torch.set_num_threads(self.before)
