"""Experiments: TOML and back, changes, and errors that name the key."""

import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedro.common.text import to_toml
from fedro.simulation.experiment import (
    BUILT_IN,
    KEYS,
    Experiment,
    ExperimentError,
    as_markdown,
    parse_change,
    read_experiment,
)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"round": 3}, "unknown key 'round': did you mean 'rounds'"),
        ({"rounds": 0}, "rounds=0: Input should be greater than or equal to 1"),
        ({"rounds": 2.5}, "rounds=2.5: Input should be a valid integer"),
        ({"rounds": True}, "rounds=True"),
        ({"rounds": "10"}, "rounds='10'"),
        ({"engine": "fast"}, "'auto', 'workers', 'batched', 'inline' or 'ray'"),
        ({"precision": "fp16"}, "'float32' or 'bfloat16'"),
        ({"client_lr": -1.0}, "client_lr=-1.0: Input should be greater than 0"),
        ({"client_lr": float("nan")}, "client_lr=nan"),
        ({"client_lr": "fast"}, "write a number"),
        ({"client_lr": "0/K"}, "client_lr='0/K'"),
        ({"client_lr": [[5, 0.1]]}, "must begin with 0 and increase"),
        ({"client_lr": [[0, 0.1], [0, 0.2]]}, "must begin with 0 and increase"),
        ({"client_lr": []}, "must begin with 0"),
        ({"sampled": 5, "tolerated": 3}, "tolerated=3 of sampled=5: need 2·tolerated < sampled"),
        ({"tolerated": 3}, "tolerated is given without sampled"),
        ({"clients": 5, "sampled": 6}, "sampled=6 of clients=5"),
        ({"momentum": 1.0}, "momentum=1.0: Input should be less than 1"),
        ({"confidence": 0}, "confidence=0"),
        ({"byzantine": -1}, "byzantine=-1"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_errors_name_the_key(values, message):
    with pytest.raises(ExperimentError, match=re.escape(message)):
        Experiment(**values)


def test_learning_rates_by_round():
    steps = [[0, 0.1], [300, 0.02], [400, 0.004]]
    paper = Experiment(client_lr=steps)
    assert [paper.lr(t) for t in (0, 299, 300, 399, 400, 10**6)] == [0.1, 0.1, 0.02, 0.02] + [
        0.004
    ] * 2
    assert Experiment(client_lr="0.5/K", local_steps=4).lr(7) == 0.125
    assert Experiment(client_lr=0.3).lr(7) == 0.3


experiments = st.builds(
    Experiment,
    dataset=st.text(min_size=1, max_size=8),
    rounds=st.integers(1, 10**6),
    client_lr=st.one_of(
        st.floats(1e-9, 10),
        st.sampled_from(["1/K", "0.5/K"]),
        st.lists(st.floats(1e-6, 1), min_size=1, max_size=4).map(
            lambda rates: [[10 * i, rate] for i, rate in enumerate(rates)]
        ),
    ),
    sampled=st.one_of(st.none(), st.integers(1, 50)),
    root=st.one_of(st.none(), st.integers(1, 9), st.just("digits")),
    l2=st.floats(0, 1),
)


@given(experiments)
def test_toml_and_back(experiment):
    assert Experiment(**tomllib.loads(to_toml(experiment.as_dict()))) == experiment


@pytest.mark.parametrize("path", sorted(BUILT_IN.glob("*.toml")), ids=lambda path: path.stem)
def test_built_in_experiments_are_valid(path):
    assert read_experiment(path) == read_experiment(path.stem)


def test_changes_from_the_command_line():
    changes = ["rounds=7", "attack=foe(tau=2.0)", 'rule="krum"', "client_lr=[[0, 1.0]]", "l2 = 0"]
    changed = read_experiment("demo", changes)
    assert (changed.rounds, changed.attack, changed.rule, changed.l2) == (
        7,
        "foe(tau=2.0)",
        "krum",
        0,
    )
    assert changed.lr(3) == 1.0
    assert parse_change("dataset=a=b") == ("dataset", "a=b")
    with pytest.raises(ExperimentError, match="cannot read --set 'rounds': write key=value"):
        read_experiment("demo", ["rounds"])
    with pytest.raises(ExperimentError, match="did you mean 'rounds'"):
        read_experiment("demo", ["ronds=3"])


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("", ["rounds=0"], "--set rounds=0: Input should be greater than or equal to 1"),
        ("rounds = 0", ["seed=1"], "{file}: rounds=0: Input should be greater"),
        ("rounds = 0", ["rounds=-1"], "--set rounds=-1: Input should be greater"),
        ("", ["ronds=3"], "--set ronds=3: unknown key 'ronds': did you mean 'rounds'"),
        ("ronds = 3", ["rounds=3"], "{file}: unknown key 'ronds'"),
        (
            "sampled = 11",
            ["tolerated=30"],
            "--set tolerated=30 and {file}: tolerated=30 of sampled=11: need 2·tolerated",
        ),
        (
            "",
            ["sampled=11", "tolerated=30"],
            "--set sampled=11 --set tolerated=30: tolerated=30 of sampled=11: need 2·tolerated",
        ),
        ("", ["tolerated=3"], "--set tolerated=3: tolerated is given without sampled"),
        ("", ["rule=medain"], "--set rule='medain': unknown rule 'medain': did you mean 'median'"),
        ("rule = 'medain'", ["seed=1"], "{file}: rule='medain': unknown rule"),
        ("", ["attack=foo"], "--set attack='foo': unknown attack"),
        ("", ["partition=shards(per_clint=2)"], "--set partition='shards(per_clint=2)': unknown"),
        ("", ["partition=owner"], "--set partition=owner and {file}: partition='owner': the"),
        ("", ["model=no_module:Net"], "--set model='no_module:Net': 'no_module:Net': there is no"),
        ("", ["root=10"], "--set root=10: rule='nnm | trimmed_mean' uses no root data"),
    ],
)
def test_errors_name_the_file_or_the_change(file, changes, message, tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(f"dataset = 'digits'\n{file}\n")
    with pytest.raises(ExperimentError) as error:
        read_experiment(path, changes)
    assert str(error.value).startswith(message.format(file=path))


def test_files_that_cannot_be_read(tmp_path):
    broken = tmp_path / "x.toml"
    broken.write_text("rounds = = 3")
    with pytest.raises(ExperimentError, match=r"x\.toml is not TOML: .*line 1"):
        read_experiment(broken)
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(ExperimentError, match="is not TOML"):
        read_experiment(broken)
    broken.write_text("round = 3")
    with pytest.raises(ExperimentError, match=r"x\.toml: unknown key 'round'"):
        read_experiment(broken)
    with pytest.raises(ExperimentError, match=r"no such file; .* built-in experiments .*demo"):
        read_experiment(tmp_path / "nothing.toml")
    with pytest.raises(ExperimentError, match="no such file"):
        read_experiment(tmp_path)


def test_the_reference_has_every_key_once_with_a_sentence():
    assert sorted(KEYS) == sorted(Experiment.model_fields)
    assert len(set(KEYS)) == len(KEYS)
    lines = [line for line in as_markdown().splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines] == list(KEYS)
    assert all(field.description.endswith(".") for field in Experiment.model_fields.values())
