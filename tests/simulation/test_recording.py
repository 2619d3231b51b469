"""Recorded runs: the saved model, and setups that are used again."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fedro.simulation.experiment import Experiment
from fedro.simulation.loop import run
from fedro.simulation.preparation import prepare
from fedro.simulation.recording import open_folder, recorded_run, run_into

pytestmark = pytest.mark.slow  # its tests train models or start processes

BASE = {"clients": 8, "sampled": 5, "tolerated": 0, "rule": "mean", "rounds": 3, "batch_size": 8}


def experiment(**changes):
    return Experiment(**{**BASE, **changes})


def frozen_first():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    net[1].requires_grad_(False)
    return net


@pytest.mark.parametrize("engine", ["inline", "batched"])
def test_the_model_that_is_saved_is_the_model_that_was_scored(tmp_path, engine):
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
            losses.append([round_.train_loss for round_ in recorded_run(setup, folder)])
    losses.append([round_.train_loss for round_ in run(setup)])
    assert losses[0] == losses[1] == losses[2]
