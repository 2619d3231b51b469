"""Lists in a sweep: which experiments they make, and how these are named."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedro.common.text import to_toml
from fedro.simulation.experiment import Experiment, ExperimentError
from fedro.simulation.sweeps import expand, read_sweep, to_sweep_values, varied_keys


def written(path: Path, values: dict) -> Path:
    path.write_text(to_toml(values))
    return path


def test_lists_make_a_grid_and_zipped_lists_go_together() -> None:
    experiments = expand(
        {"sampled": [7, 9], "tolerated": [1, 2], "zip": ["sampled", "tolerated"], "seed": [0, 1]}
    )
    assert [(e.sampled, e.tolerated, e.seed) for e in experiments.values()] == [
        (7, 1, 0),
        (7, 1, 1),
        (9, 2, 0),
        (9, 2, 1),
    ]
    assert next(iter(experiments)) == "sampled=7,tolerated=1,seed=0"


def test_several_groups_go_together() -> None:
    pairs = {"sampled": [7, 9], "tolerated": [1, 2], "rounds": [5, 6], "seed": [3, 4]}
    experiments = expand({**pairs, "zip": [["sampled", "tolerated"], ["rounds", "seed"]]})
    assert [(e.sampled, e.rounds, e.seed) for e in experiments.values()] == [
        *((7, 5, 3), (7, 6, 4), (9, 5, 3), (9, 6, 4)),
    ]


@pytest.mark.parametrize(
    ("value", "runs"),
    [
        ([[0, 0.1], [5, 0.02]], 1),  # a schedule
        ([0.1, 0.2], 2),
        (["1/K", 0.1, [[0, 0.1], [5, 0.02]]], 3),
        ([[[0, 0.1]], [[0, 0.2]]], 2),
    ],
)
def test_a_schedule_is_one_value(value: list, runs: int) -> None:
    assert len(expand({"client_lr": value})) == runs


def test_a_base_is_built_in_or_beside_the_file(tmp_path: Path) -> None:
    written(tmp_path / "mine.toml", {"dataset": "digits", "rounds": 3})
    experiments = read_sweep(written(tmp_path / "s.toml", {"base": "mine.toml", "seed": [0, 1]}))
    assert {e.rounds for e in experiments.values()} == {3}
    experiments = read_sweep(written(tmp_path / "s.toml", {"base": "demo"}), ["seed=[0, 1, 2]"])
    assert len(experiments) == 3
    assert experiments["seed=0"].model == "mlp(hidden=32)"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ruel": ["mean"]}, "unknown key 'ruel': did you mean 'rule'"),
        ({"seed": []}, r"seed=\[\]: a list needs"),
        ({"seed": [1, 1]}, "seed=1.* occurs twice"),
        ({"seed": [0, -1]}, "in the run seed=-1: seed=-1"),
        ({"zip": ["seed"]}, "zip names 'seed', which is not a list"),
        ({"zip": 3}, "zip=3: name the keys"),
        ({"seed": [0], "zip": [["seed"], ["seed"]]}, "names 'seed' twice"),
        ({"seed": [0, 1], "rounds": [2], "zip": ["seed", "rounds"]}, "the same length"),
        ({"seed": list(range(200)), "rounds": list(range(1, 200))}, "more than 10,000 runs"),
        ({"base": "nothing"}, "nothing: there is no such file"),
        ({"base": ["demo", "femnist"]}, "must be one experiment or file"),
    ],
)
def test_bad_lists_are_explained(values: dict, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        expand(values)


def test_names_are_folders_of_their_own() -> None:
    attacks = ["none", "foe(tau=2.0)", "foe( tau=2.0)", "alie | takeover(at='more')", "x" * 300]
    names = list(expand({"attack": attacks}))
    assert len(set(names)) == len(attacks)
    assert all(len(name) < 140 and not set(name) & set("/ '()|\n") for name in names)
    turned = expand({"attack": attacks[::-1]})
    assert {name: e.attack for name, e in turned.items()} == dict(zip(names, attacks, strict=True))


def test_ten_thousand_runs_are_read_at_once() -> None:
    start = time.process_time()
    assert (
        len(expand({"seed": list(range(2500)), "rule": ["mean", "median", "krum", "mda"]})) == 10**4
    )
    assert time.process_time() - start < 30


@given(
    st.lists(st.tuples(st.integers(0, 99), st.sampled_from(["mean", "median"])), min_size=1).filter(
        lambda pairs: len(set(pairs)) == len(pairs)
    )
)
def test_experiments_are_written_as_a_sweep_of_themselves(pairs: list[tuple[int, str]]) -> None:
    experiments = [Experiment(seed=seed, rule=rule) for seed, rule in pairs]
    assert list(expand(to_sweep_values(experiments)).values()) == experiments


def test_varied_keys_are_those_that_differ() -> None:
    a, b = Experiment(seed=0, clients=9), Experiment(seed=1)
    assert varied_keys([a, b]) == ["clients", "seed"]
    with pytest.raises(ValueError, match="clients is set in some"):
        to_sweep_values([a, b])
