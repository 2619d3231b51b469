"""All engines give the same results, to the bit where that is promised, whatever fails."""

import os
import subprocess
import sys
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import engine_cases
from engine_cases import CLASSES, SHAPE, X, Y, make_config, make_job
from fedro.common.user_code import UserCodeError
from fedro.models import FlatModel, build
from fedro.simulation.client import LocalTraining
from fedro.simulation.engines import choose_engine, make_engine
from fedro.simulation.engines.inline import one_thread

pytestmark = pytest.mark.slow  # its tests train models or start processes

HERE = ("workers", "batched", "inline")  # test_ray_engine.py has the other one


def train(kind, config, rows=None, data=(X, Y)):
    rows = range(config.rows) if rows is None else rows
    start = FlatModel(config.build()).vector.clone()
    with make_engine(kind, config) as engine:
        losses = engine.train(start, [make_job(row, data) for row in rows], lr=0.1)
        return engine.updates.clone(), losses, engine.evaluate(start, *data)


def reference(config, row, data=(X, Y), restraint=0.0):
    """FedAvg's client in ten lines of plain PyTorch; an attacker's loss has a second part."""
    model = config.build()
    start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=0.1,
        momentum=config.training.momentum,
        weight_decay=config.training.l2,
    )
    for x, y in zip(*make_job(row, data).batches(), strict=True):
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
    config = make_config(data=data, workers=1)
    updates, losses, (loss, right) = train(kind, config, data=data)
    for row in range(config.rows):
        assert close(updates[row], reference(config, row, data))
    assert sorted(losses) == list(range(config.rows))
    outputs = config.build()(data[0] if not bytes_ else data[0] / 255)
    torch.testing.assert_close(loss, F.cross_entropy(outputs, Y, reduction="none").detach())
    assert torch.equal(right, outputs.argmax(1) == Y)


@pytest.mark.parametrize("kind", HERE)
def test_every_engine_restrains_the_training_of_attackers(kind):
    config, restraints = make_config(workers=1), [0.0, 0.6, 0.05, 1.0, 0.0]
    start = FlatModel(config.build()).vector.clone()
    jobs = [make_job(row, restraint=restraint) for row, restraint in enumerate(restraints)]
    with make_engine(kind, config) as engine:
        losses = engine.train(start, jobs, lr=0.1)
        updates = engine.updates.clone()
        expected = engine.train(start, [make_job(row) for row in range(5)], lr=0.1)
        plain = engine.updates.clone()
    for row, restraint in enumerate(restraints):
        assert close(updates[row], reference(config, row, restraint=restraint))
        assert torch.equal(updates[row], plain[row]) == (restraint == 0.0)
    assert losses[0] == expected[0]
    assert updates[1].norm() < 0.5 * plain[1].norm()


@pytest.mark.slow
def test_same_bits_for_any_number_of_workers_with_batchnorm_and_dropout():
    x = torch.rand(200, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    results = []
    for kind, workers in (("workers", 1), ("workers", 3), ("inline", None)):
        config = make_config("cifar_cnn", data=(x, Y), workers=workers)
        with one_thread():
            results.append(train(kind, config, data=(x, Y)))
    assert torch.equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]
    assert torch.equal(results[0][0], results[2][0])  # one thread here, too
    statistics = results[0][0][:, FlatModel(config.build()).trained :]
    assert (statistics != 0).any(1).all()
    again = train("workers", config, data=(x, Y))
    assert torch.equal(again[0], results[0][0])


def test_a_clients_bits_do_not_depend_on_the_others():
    config = make_config(rows=40)
    together, losses, _ = train("batched", config)
    for rows in ([7], [39, 7], range(3, 40)):
        updates, some, _ = train("batched", config, rows=rows)
        assert all(torch.equal(updates[row], together[row]) for row in rows)
        assert all(some[row] == losses[row] for row in rows)


def test_frozen_layers_are_respected_by_every_engine():
    name = "engine_cases:half_frozen"
    updates = {kind: train(kind, make_config(name, workers=1))[0] for kind in HERE}
    assert updates["inline"].shape == (5, 32 * 10 + 10)
    assert close(updates["batched"], updates["inline"])
    assert close(updates["workers"], updates["inline"])


@pytest.fixture
def command(tmp_path, monkeypatch):
    """A file with commands for the model `Unreliable`."""
    path = tmp_path / "command"
    monkeypatch.setenv("TEST_ENGINE_COMMAND", str(path))
    return path


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_the_bits_are_the_same(command):
    config = make_config("engine_cases:Unreliable", workers=2)
    expected = train("workers", config)[0]
    command.write_text("once die")
    assert torch.equal(train("workers", config)[0], expected)
    assert not command.exists()


@pytest.mark.slow
def test_a_job_that_kills_every_worker_is_config_up(command):
    command.write_text("always die")
    with pytest.raises(ChildProcessError, match=r"3 worker processes died .* exit code -9"):
        train("workers", make_config("engine_cases:Unreliable", workers=2))


def test_an_error_in_the_model_is_reported_with_its_place(command):
    command.write_text("always fail")
    with pytest.raises(UserCodeError, match="ZeroDivisionError: the model's own") as raised:
        train("workers", make_config("engine_cases:Unreliable", workers=1))
    assert (raised.value.file, raised.value.function) == (engine_cases.__file__, "forward")


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed():
    program = (
        "import sys, time, engine_cases as cases\n"
        "from fedro.simulation.engines import make_engine\n"
        "with make_engine('workers', cases.make_config(workers=2)) as engine:\n"
        "    print(*[w.process.pid for w in engine.workers], flush=True)\n"
        "    time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(engine_cases.__file__)}
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, text=True
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
    plain = train("inline", make_config())[0]
    for kind in ("inline", "batched"):
        half = train(kind, make_config(training=LocalTraining("classify", 0.5, 1e-3, "bfloat16")))[
            0
        ]
        assert 1e-4 < ((half - plain).norm() / plain.norm()).item() < 0.05


def test_the_choice_depends_on_the_model():
    small, large = (FlatModel(build(f"mlp(hidden={h})", SHAPE, CLASSES)) for h in (8, 5000))
    cifar = FlatModel(build("cifar_cnn", (3, 8, 8), CLASSES))
    assert choose_engine("auto", small, "cpu", True) == "batched"
    assert choose_engine("auto", large, "cpu", True) == "workers"
    assert choose_engine("auto", cifar, "cpu", True) == "workers"
    assert (
        choose_engine("auto", cifar, "cpu", False)
        == choose_engine("auto", large, "cuda", True)
        == "inline"
    )
    with pytest.raises(ValueError, match="cannot train a model with BatchNorm"):
        choose_engine("batched", cifar, "cpu", True)
    with pytest.raises(ValueError, match="by its name"):
        choose_engine("workers", small, "cpu", False)
    with pytest.raises(ValueError, match="on the CPU, not on cuda"):
        choose_engine("workers", small, "cuda", True)
    with pytest.raises(ValueError, match="unknown engine 'worker': did you mean 'workers'"):
        choose_engine("worker", small, "cpu", True)
