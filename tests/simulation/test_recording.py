"""Recorded runs: the saved model, setups that are used again, extensions and reduced batches."""

import json
import shutil
import tomllib
from contextlib import closing

import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import hypergeom
from torch import nn

from fedro.common.text import percent, to_toml
from fedro.runs import RunFolderError, read
from fedro.simulation.experiment import Experiment
from fedro.simulation.loop import run
from fedro.simulation.preparation import prepare
from fedro.simulation.recording import (
    differences_to,
    extension_note,
    open_folder,
    recorded_run,
    run_into,
)
from run_cases import outcome

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


# A plan for 12 rounds chooses other numbers of sampled and tolerated clients than one for 31.
PLANNED = Experiment(
    clients=50, byzantine=10, attack="mimic(warmup=5)", rule="clip_step | nnm | trimmed_mean",
    rounds=12, local_steps=2, batch_size=8, evaluate_every=5, checkpoint_every=5,
    client_lr=[[0, 0.1], [20, 0.02]],
)  # fmt: skip
MORE = 31


def numbers(experiment):
    setup = prepare(experiment)
    return {"sampled": setup.sampled, "tolerated": setup.tolerated}


def comparable(path):
    """Everything that must be equal: not the times, and not how often the model was scored."""
    rounds, model, summary = outcome(path)
    for line in rounds:
        line.pop("score", None), line.pop("final", None)
    return rounds, model, {key: value for key, value in summary.items() if key != "seconds"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "finished"
    list(run_into(path, PLANNED))
    return path


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    """A run of more rounds from the start, with the numbers of the run that is extended."""
    path = tmp_path_factory.mktemp("runs") / "longer"
    list(run_into(path, PLANNED.replace(rounds=MORE, **numbers(PLANNED))))
    return path


def copied(path, to):
    return shutil.copytree(path, to / "run")


def test_an_extended_run_has_the_bits_of_a_longer_one(finished, longer, tmp_path):
    assert numbers(PLANNED) != numbers(PLANNED.replace(rounds=MORE))
    path, before = copied(finished, tmp_path), outcome(finished)
    assert [r.round for r in run_into(path, PLANNED.replace(rounds=MORE), resume=True)] == list(
        range(12, MORE)
    )
    assert comparable(path) == comparable(longer)
    assert outcome(path)[0][:12] == before[0]  # with the final score of the old end
    assert "final" in outcome(path)[0][11]
    config = read(path).config
    assert config == {**PLANNED.as_dict(), "rounds": MORE, **numbers(PLANNED)}
    assert tomllib.loads((path / "config.toml").read_text()) == config
    assert json.loads((path / "summary.json.undone").read_text())["rounds"] == 12
    # The recorded configuration repeats the run, and the given one finds it complete.
    list(run_into(tmp_path / "again", Experiment(**config)))
    assert comparable(tmp_path / "again") == comparable(longer)
    assert list(run_into(path, PLANNED.replace(rounds=MORE), resume=True)) == []
    assert len(list(run_into(path, PLANNED.replace(rounds=MORE + 2), resume=True))) == 2


@pytest.mark.parametrize("done", [3, 7])
def test_an_unfinished_run_is_extended_or_shortened(finished, longer, tmp_path, done):
    path = tmp_path / "run"
    with closing(run_into(path, PLANNED)) as rounds:
        for round_ in rounds:
            if round_.round + 1 == done:
                break
    with closing(run_into(path, PLANNED.replace(rounds=MORE), resume=True)) as rounds:
        assert next(rounds).round == done
    rest = run_into(path, PLANNED.replace(rounds=MORE), resume=True)
    assert [round_.round for round_ in rest] == list(range(done + 1, MORE))
    assert comparable(path) == comparable(longer)


def test_an_old_run_without_a_checkpoint_of_its_end_is_extended(finished, longer, tmp_path):
    path = copied(finished, tmp_path)
    (path / "checkpoints" / "round-000012.safetensors").unlink()
    rounds = run_into(path, PLANNED.replace(rounds=MORE), resume=True)
    assert [round_.round for round_ in rounds] == list(range(10, MORE))
    assert comparable(path) == comparable(longer)


@pytest.mark.parametrize("rounds", [11, 5])
def test_a_finished_run_is_not_shortened(finished, tmp_path, rounds):
    path = copied(finished, tmp_path)
    with pytest.raises(RunFolderError, match=f"rounds={rounds}: .* has 12 rounds already; give mo"):
        run_into(path, PLANNED.replace(rounds=rounds), resume=True)
    assert outcome(path) == outcome(finished)
    assert list(run_into(path, PLANNED, resume=True)) == []


def test_an_unfinished_run_cannot_have_fewer_rounds_than_it_has(tmp_path):
    path = tmp_path / "run"
    with closing(run_into(path, PLANNED)) as rounds:
        for _ in range(7):
            next(rounds)
    for fewer in (4, 7):
        with pytest.raises(RunFolderError, match=f"rounds={fewer}: .* has 7 rounds already"):
            run_into(path, PLANNED.replace(rounds=fewer), resume=True)
    assert [r.round for r in run_into(path, PLANNED.replace(rounds=8), resume=True)] == [7]
    assert read(path).summary["rounds"] == 8


def test_a_random_output_depends_on_the_number_of_rounds(tmp_path):
    given = experiment(output="random")
    list(run_into(tmp_path / "run", given))
    with pytest.raises(RunFolderError, match='output="random", which draws the model'):
        run_into(tmp_path / "run", given.replace(rounds=9), resume=True)


def test_the_server_data_of_an_extended_run_are_the_same(tmp_path):
    given = experiment(rule="fltrust", root=50, clients=12)
    list(run_into(tmp_path / "short", given))
    list(run_into(tmp_path / "short", given.replace(rounds=6), resume=True))
    list(run_into(tmp_path / "long", given.replace(rounds=6)))
    assert comparable(tmp_path / "short") == comparable(tmp_path / "long")


def test_other_keys_cannot_change_with_the_rounds(finished, tmp_path):
    path = copied(finished, tmp_path)
    with pytest.raises(RunFolderError, match=r"attack: 'mimic.* in the run, 'alie' given now"):
        run_into(path, PLANNED.replace(rounds=MORE, attack="alie"), resume=True)
    with pytest.raises(RunFolderError, match="sampled: 27 in the run, 25 here"):
        run_into(path, PLANNED.replace(rounds=MORE, sampled=25, tolerated=9), resume=True)
    assert outcome(path) == outcome(finished)
    assert (
        len(list(run_into(path, PLANNED.replace(rounds=13, checkpoint_every=3), resume=True))) == 1
    )


def test_damaged_checkpoints_stop_an_extension_before_it_changes_anything(finished, tmp_path):
    path = copied(finished, tmp_path)
    for file in (path / "checkpoints").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(RunFolderError, match="every checkpoint is damaged"):
        run_into(path, PLANNED.replace(rounds=MORE), resume=True)
    assert outcome(path) == outcome(finished)


def test_the_probability_of_an_extended_run_is_exact(finished):
    setup = prepare(PLANNED.replace(rounds=MORE, **numbers(PLANNED)))
    within = [
        hypergeom(50, 10, setup.sampled).cdf(setup.tolerated) ** rounds for rounds in (12, MORE)
    ]
    assert within[1] < 0.99 < within[0]
    assert extension_note(setup, finished) == (
        f"{MORE} rounds instead of 12: all of them stay within b̂ = {setup.tolerated} with "
        f"probability {percent(within[1])} ({percent(within[0])} for 12; wanted: 99%)"
    )
    assert "Not safe" in setup.warnings[0]
    assert extension_note(prepare(PLANNED), finished) is None


# Batches that are far larger than the clients' data


def test_a_batch_much_larger_than_the_data_is_reduced_and_announced(tmp_path):
    given = Experiment(clients=50, rounds=2, local_steps=1, batch_size=100_000)
    setup = prepare(given)
    most = int(setup.federation.sizes.max())
    assert setup.experiment == given.replace(batch_size=10 * most)
    (warning,) = setup.warnings
    assert f"batch_size=100,000 is far more than the {most} training examples" in warning
    assert f"uses batch_size={10 * most:,}" in warning
    list(run_into(tmp_path / "run", given))
    assert read(tmp_path / "run").config["batch_size"] == 10 * most
    same = given.replace(batch_size=10 * most)
    assert prepare(same).warnings == ()
    list(run_into(tmp_path / "same", same))
    assert outcome(tmp_path / "run") == outcome(tmp_path / "same")
    # Both the given and the used value find the run again.
    for value in (given, same):
        assert list(run_into(tmp_path / "run", value, resume=True)) == []
        assert not differences_to(value, tmp_path / "run")
    other = given.replace(batch_size=32)
    assert f"batch_size: {10 * most} in the run, 32" in differences_to(other, tmp_path / "run")
    with pytest.raises(RunFolderError, match=f"batch_size: {10 * most} in the run, 32 given now"):
        run_into(tmp_path / "run", other, resume=True)


def test_a_run_goes_on_with_its_numbers_whatever_a_plan_would_choose_now(finished, tmp_path):
    """As if the run had been begun with a version whose plan chose others."""
    path = tmp_path / "run"
    old = PLANNED.replace(sampled=19, tolerated=6)
    with closing(run_into(path, old)) as rounds:
        next(rounds)
    run = json.loads((path / "run.json").read_text())
    config = {k: v for k, v in tomllib.loads(run["config"]).items() if k not in numbers(PLANNED)}
    run["config"] = to_toml(config)
    (path / "run.json").write_text(json.dumps(run))
    (path / "config.toml").write_text(run["config"])
    assert numbers(PLANNED) != {"sampled": 19, "tolerated": 6}
    rest = list(run_into(path, PLANNED, resume=True))
    assert {len(round_.sampled) for round_ in rest} == {19}
