"""Lists in a sweep: which experiments they make, and how these are named."""

import sys
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
        (
            {"rule": ["mean", "medain"], "seed": [0, 1]},
            "in the run rule=medain,seed=0: rule='medain': unknown rule 'medain': did you mean",
        ),
        ({"rule": ["mean", "krum(b=2)"]}, r"rule=krum-b-2: rule='krum\(b=2\)' names b"),
        ({"rule": ["mean", "fltrust"]}, "in the run rule=fltrust: .* as in root=100"),
        ({"attack": ["alie", "foe(tua=1.0)"]}, "attack=foe-tua-1.0: .*unknown option of foe 'tua'"),
        ({"dataset": ["digits", "digts"]}, "dataset='digts': unknown data source 'digts'"),
        ({"dataset": ["folder(pth='x')"], "model": "mlp"}, "unknown option of folder 'pth'"),
        ({"partition": ["iid", "shards(n=2)"]}, "in the run partition=shards-n-2: partition="),
        ({"partition": ["owner"]}, "partition='owner': the samples of digits belong to nobody"),
        ({"model": ["mlp", "mlp(hiden=2)"]}, "unknown option of mlp 'hiden': did you mean"),
        ({"model": ["mlp", "no_module:Net"]}, "in the run model=no_module-Net: .*there is no mod"),
        ({"dataset": ["digits", "no_module:make"]}, "dataset='no_module:make': .*there is no mod"),
        ({"rule": ["fltrust"], "root": ["digts"]}, "root='digts': unknown data source"),
        ({"dataset": ["folder(path='x')"]}, "in the run dataset=folder-path-x: model is missing"),
    ],
)
def test_bad_lists_are_explained(values: dict, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        expand(values)


def test_names_are_folders_of_their_own() -> None:
    long = f"foe(tau=2.{'0' * 300})"
    attacks = ["none", "foe(tau=2.0)", "foe( tau=2.0)", "alie | takeover(at='more')", long]
    names = list(expand({"attack": attacks}))
    assert len(set(names)) == len(attacks)
    assert all(len(name) < 140 and not set(name) & set("/ '()|\n") for name in names)
    turned = expand({"attack": attacks[::-1]})
    assert {name: e.attack for name, e in turned.items()} == dict(zip(names, attacks, strict=True))


def test_a_share_and_a_number_have_folders_that_tell_them_apart() -> None:
    assert list(expand({"clients": 40, "byzantine": ["10%", 10, "2.5 %"]})) == [
        "byzantine=10pct",
        "byzantine=10",
        "byzantine=2.5pct",
    ]


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


def test_your_own_parts_are_found_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parts_of_a_sweep.py").write_text(
        "def make(size, *, clients): ...\ndef net(classes, width=8): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[1:])
    values = {"dataset": "parts_of_a_sweep:make(size=3)", "model": "parts_of_a_sweep:net"}
    assert len(expand({**values, "seed": [0, 1]})) == 2
    assert "" not in sys.path
    with pytest.raises(ExperimentError, match="unknown option of parts_of_a_sweep:net 'widht'"):
        expand({**values, "model": ["parts_of_a_sweep:net", "parts_of_a_sweep:net(widht=1)"]})
    with pytest.raises(ExperimentError, match="parts_of_a_sweep:make needs size"):
        expand({**values, "dataset": ["parts_of_a_sweep:make"]})
    with pytest.raises(ExperimentError, match="unknown name in parts_of_a_sweep 'nett'"):
        expand({**values, "model": ["parts_of_a_sweep:nett"]})


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ({}, "seed=[0, -1]", "--set seed=[0, -1]: in the run seed=-1: seed=-1: Input"),
        ({}, "rule=['mean', 'medain']", "--set rule=['mean', 'medain']: in the run rule=medain"),
        ({}, "ruel=['mean']", "--set ruel=['mean']: unknown key 'ruel'"),
        ({}, "rounds=0", "--set rounds=0: Input should be"),
        ({"rule": ["medain"]}, "seed=[0, 1]", "{file}: in the run rule=medain,seed=0: rule='med"),
        (
            {"sampled": 5},
            "tolerated=[2, 3]",
            "--set tolerated=[2, 3] and {file}: in the run tolerated=3: tolerated=3 of sampled=5",
        ),
        ({"zip": ["seed"]}, "seed=1", "--set seed=1 and {file}: zip names 'seed'"),
    ],
)
def test_errors_name_the_file_or_the_change(
    file: dict, change: str, message: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "s.toml", file)
    with pytest.raises(ExperimentError) as error:
        read_sweep(path, [change])
    assert str(error.value).startswith(message.format(file=path))


def test_shares_of_a_base_follow_the_clients_of_the_sweep(tmp_path):
    base = tmp_path / "base.toml"
    base.write_text('clients = 30\nbyzantine = "10%"\nsampled = "50%"\ntolerated = "20%"\n')
    expanded = expand({"base": str(base), "clients": [30, 60, 100]})
    counts = [(e.byzantine, e.sampled, e.tolerated) for e in expanded.values()]
    assert counts == [(3, 15, 3), (6, 30, 6), (10, 50, 10)]
