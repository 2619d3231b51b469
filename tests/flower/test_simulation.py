"""Whole Flower apps over Ray, with bad clients."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import fedro
from fedro.runs import read
from fedro.simulation.engines.inline import one_thread
from fedro.simulation.preparation import prepare
from fedro.simulation.round import score_model
from flower_environment import QUIET

pytest.importorskip("ray")
HELPERS = Path(__file__).parents[1] / "helpers"


def run_app(name, folder, *words):
    """Run one of the apps in tests/helpers."""
    return subprocess.run(
        [sys.executable, HELPERS / name, folder / "run", *words],
        env={**os.environ, **QUIET, "FLWR_HOME": str(folder / "flwr")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_an_app_with_bad_clients_learns(tmp_path):
    done = run_app("flower_bad_clients_app.py", tmp_path, "6")
    found = re.search(r"ERROR (\S+) LOSS (\S+)", done.stdout)
    assert found is not None, done.stdout[-3000:] + done.stderr[-3000:]
    assert float(found[1]) < 0.03
    assert float(found[2]) < 0.001  # and not the liar's
    run = read(tmp_path / "run")
    assert run.finished
    assert [line["void"] for line in run.rounds] == [None] * 6
    rejected = [line["rejected"] for line in run.rounds]
    missing = [line["missing"] for line in run.rounds]
    assert any(rejected)
    assert {reason for lost in rejected for reason in lost.values()} == {"holds NaN or Inf"}
    assert all("no data" in reason for lost in missing for reason in lost.values())
    assert len({client for lost in (*rejected, *missing) for client in lost}) == 2


@pytest.mark.slow
@pytest.mark.soak
def test_150_nodes_under_attack_learn_what_they_learn_without_flower(tmp_path):
    """Weights travel, not updates, so that a round differs by roundings: 1e-5 of the step."""
    from flower_digits_app import EXPERIMENT

    done = run_app("flower_digits_app.py", tmp_path)
    run = read(tmp_path / "run")
    assert run.finished, done.stdout[-3000:] + done.stderr[-3000:]
    setup = prepare(EXPERIMENT)
    with one_thread():  # two would wait for each other where others are at work
        expected = list(fedro.run(setup))
    assert [line["sampled"] for line in run.rounds] == [r.sampled.tolist() for r in expected]
    assert not any(line["void"] or line["missing"] or line["rejected"] for line in run.rounds)
    assert sum(r.byzantine.size for r in expected) > EXPERIMENT.rounds  # there was an attack
    module = setup.build()
    module.load_state_dict(load_file(tmp_path / "run" / "model.safetensors"))
    model, last = torch.nn.utils.parameters_to_vector(module.parameters()), expected[-1]
    gap = (model - last.state.model).norm() / (last.state.model - setup.start).norm()
    assert gap.item() < 1e-4
    with setup.make_engine() as engine:
        score = score_model(setup, engine, model.detach())
    assert last.final.accuracy > 0.8
    assert score.accuracy == pytest.approx(last.final.accuracy, abs=0.005)
