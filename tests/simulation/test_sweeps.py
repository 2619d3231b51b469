"""``fedro sweep``: what lists mean, and that no run is lost, whatever happens to it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedro.cli import app
from fedro.common.text import to_toml
from fedro.runs import RunFolderError, read
from fedro.simulation.experiment import Experiment, ExperimentError
from fedro.simulation.recording import run_into
from fedro.simulation.sweeps import carry_out, expand, read_sweep, sweep, varied, zipped
from run_cases import outcome

SMALL = {
    "dataset": "digits",
    "clients": 12,
    "model": "mlp(hidden=8)",
    "byzantine": 2,
    "rounds": 6,
    "local_steps": 2,
    "batch_size": 8,
    "sampled": 8,
    "tolerated": 2,
    "checkpoint_every": 2,
    "evaluate_every": 3,
}
GRID = {**SMALL, "attack": ["none", "alie"], "seed": [0, 1]}


def written(path: Path, values: dict) -> Path:
    path.write_text(to_toml(values))
    return path


# What lists mean


def test_lists_make_a_grid_and_zipped_lists_go_together() -> None:
    found = expand(
        {"sampled": [7, 9], "tolerated": [1, 2], "zip": ["sampled", "tolerated"], "seed": [0, 1]}
    )
    assert [(e.sampled, e.tolerated, e.seed) for e in found.values()] == [
        (7, 1, 0),
        (7, 1, 1),
        (9, 2, 0),
        (9, 2, 1),
    ]
    assert next(iter(found)) == "sampled=7,tolerated=1,seed=0"


def test_several_groups_go_together() -> None:
    pairs = {"sampled": [7, 9], "tolerated": [1, 2], "rounds": [5, 6], "seed": [3, 4]}
    found = expand({**pairs, "zip": [["sampled", "tolerated"], ["rounds", "seed"]]})
    assert [(e.sampled, e.rounds, e.seed) for e in found.values()] == [
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
    written(tmp_path / "mine.toml", {**SMALL, "rounds": 3})
    found = read_sweep(written(tmp_path / "s.toml", {"base": "mine.toml", "seed": [0, 1]}))
    assert {e.rounds for e in found.values()} == {3}
    found = read_sweep(written(tmp_path / "s.toml", {"base": "demo"}), ["seed=[0, 1, 2]"])
    assert len(found) == 3
    assert found["seed=0"].model == "mlp(hidden=32)"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ruel": ["mean"]}, "unknown key 'ruel': did you mean 'rule'"),
        ({"seed": []}, r"seed=\[\]: an axis needs"),
        ({"seed": [1, 1]}, "seed=1.* is there twice"),
        ({"seed": [0, -1]}, "in the run seed=-1: seed=-1"),
        ({"zip": ["seed"]}, "zip names 'seed', which is no list"),
        ({"zip": 3}, "zip=3: name the keys"),
        ({"seed": [0], "zip": [["seed"], ["seed"]]}, "names 'seed' twice"),
        ({"seed": [0, 1], "rounds": [2], "zip": ["seed", "rounds"]}, "the same length"),
        ({"seed": list(range(200)), "rounds": list(range(1, 200))}, "more than 10,000 runs"),
        ({"base": "nothing"}, "nothing: there is no such file"),
        ({"base": ["demo", "femnist"]}, "name one experiment or file"),
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


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../other", "/tmp/other", "a/b", "lock", "log.txt"]
)
def test_names_of_your_own_stay_in_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a run's folder"):
        sweep({name: Experiment(**SMALL)}, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="one folder on some disks"):
        sweep({"net": Experiment(**SMALL), "Net": Experiment(**SMALL)}, tmp_path / "out")


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
    assert list(expand(zipped(experiments)).values()) == experiments


def test_varied_keys_are_those_that_differ() -> None:
    a, b = Experiment(seed=0, clients=9), Experiment(seed=1)
    assert varied([a, b]) == ["clients", "seed"]
    with pytest.raises(ValueError, match="clients is set in some"):
        zipped([a, b])


# What becomes of runs


def test_a_sweep_gives_the_bits_of_its_runs_alone(tmp_path: Path) -> None:
    experiments = expand(GRID)
    found = sweep(experiments, tmp_path / "sweep", jobs=2)
    assert list(found) == list(experiments)
    for name, experiment in experiments.items():
        list(run_into(tmp_path / name, experiment))
        assert outcome(tmp_path / "sweep" / name) == outcome(tmp_path / name)
        assert found[name].summary == read(tmp_path / "sweep" / name).summary


def test_what_is_finished_is_kept_and_what_was_cut_goes_on(tmp_path: Path) -> None:
    experiments = expand(GRID)
    first, second = list(experiments)[:2]
    list(run_into(tmp_path / "a" / first, experiments[first]))
    begun = run_into(tmp_path / "a" / second, experiments[second])
    for _ in range(3):
        next(begun)
    begun.close()
    before = (tmp_path / "a" / first / "summary.json").stat().st_mtime_ns
    told = list(carry_out(experiments, tmp_path / "a", jobs=1))
    assert told[0].name == first
    assert told[0].outcome is not None
    assert (tmp_path / "a" / first / "summary.json").stat().st_mtime_ns == before
    sweep(experiments, tmp_path / "b", jobs=1)
    for name in experiments:
        assert outcome(tmp_path / "a" / name) == outcome(tmp_path / "b" / name)


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    config = written(tmp_path / "s.toml", {**SMALL, "rule": ["nonsense", "mean"], "seed": [0, 1]})
    done = CliRunner().invoke(app, ["sweep", str(config), "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "2 runs failed: unknown rule 'nonsense'" in done.output
    assert "2 of 4 runs failed" in done.output
    assert all(read(tmp_path / "out" / f"rule=mean,seed={seed}").finished for seed in (0, 1))


def test_a_failure_of_your_own_code_is_told_with_its_kind(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "mine.py").write_text("def make(shape, classes):\n    return 1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found = sweep({"a": Experiment(**{**SMALL, "model": "mine:make"})}, "out")
    assert found["a"].summary is None
    assert "division by zero" in str(found["a"].error)


def test_a_process_that_is_killed_fails_its_run_only(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "fatal.py").write_text(
        "import os, signal\n\ndef make(shape, classes):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    experiments = expand({**SMALL, "model": ["fatal:make", "mlp(hidden=8)"]})
    dead, alive = sweep(experiments, "out", jobs=1).values()
    assert "killed by signal 9" in str(dead.error)
    assert alive.summary is not None


def test_another_experiment_in_the_folder_is_refused(tmp_path: Path) -> None:
    experiments = expand({**SMALL, "seed": [0]})
    sweep(experiments, tmp_path)
    other = {name: each.replace(rounds=9) for name, each in experiments.items()}
    with pytest.raises(RunFolderError, match="rounds: 6 in the run, 9 given now"):
        sweep(other, tmp_path)


def test_a_second_sweep_in_the_folder_is_refused(tmp_path: Path) -> None:
    experiments = expand({**SMALL, "rounds": 10**6, "seed": [0]})
    told = carry_out(experiments, tmp_path, jobs=1)
    next(told)
    try:
        with pytest.raises(RunFolderError, match="in use by process"):
            sweep(experiments, tmp_path)
    finally:
        told.close()
    assert read(tmp_path / "seed=0").rounds  # saved, as far as it went


def test_a_sweep_of_inline_runs_goes_on_however_few_are_left(tmp_path: Path) -> None:
    experiments = expand({**SMALL, "engine": "inline", "rounds": 30, "seed": [0, 1]})
    told = carry_out(experiments, tmp_path, jobs=2)
    next(news for news in told if news.outcome is not None)
    told.close()
    assert all(outcome.error is None for outcome in sweep(experiments, tmp_path, jobs=2).values())


def test_a_run_that_swallows_the_interrupt_is_saved(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "deaf.py").write_text(
        "import signal\nfrom torch import nn\n\n"
        "def make(shape, classes):\n"
        "    signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    endless = {**SMALL, "model": "deaf:make", "rounds": 10**6, "checkpoint_every": 10**6}
    told = carry_out({"deaf": Experiment(**endless)}, Path("out"))
    next(told)
    told.close()
    assert list(Path("out/deaf/checkpoints").iterdir())


def test_a_damaged_run_does_not_stop_the_others(tmp_path: Path) -> None:
    sweep(expand({**SMALL, "seed": [0]}), tmp_path)
    (tmp_path / "seed=0" / "summary.json").write_text("{")
    damaged, whole = sweep(expand({**SMALL, "seed": [0, 1]}), tmp_path).values()
    assert "summary.json is damaged" in str(damaged.error)
    assert whole.summary is not None


def test_quiet_still_tells_what_failed(tmp_path: Path) -> None:
    config = written(tmp_path / "s.toml", {**SMALL, "rule": ["nonsense"]})
    done = CliRunner().invoke(app, ["sweep", str(config), "--out", str(tmp_path / "o"), "--quiet"])
    assert done.exit_code == 1
    assert "rule=nonsense: unknown rule" in done.stderr
    assert not done.stdout
    assert "Traceback" in (tmp_path / "o" / "log.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_killed_ends_with_the_same_results(tmp_path: Path, how: int) -> None:
    config = written(tmp_path / "s.toml", {**SMALL, "seed": [0, 1], "rounds": 250})
    command = [sys.executable, "-m", "fedro", "sweep", str(config), "--jobs", "2", "--out"]
    subprocess.run(
        [*command, str(tmp_path / "whole")], check=True, capture_output=True, timeout=120
    )
    process = subprocess.Popen(
        [*command, str(tmp_path / "cut")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        wait_for_growth(tmp_path / "cut")
        os.kill(process.pid, how)
        printed = process.communicate(timeout=100)[0].decode()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == (-how if how == signal.SIGKILL else 130)
    assert ("the same command goes on" in printed) == (how != signal.SIGKILL)
    assert not any(read(path.parent).finished for path in (tmp_path / "cut").glob("*/run.json"))
    subprocess.run([*command, str(tmp_path / "cut")], check=True, capture_output=True, timeout=120)
    for name in read_sweep(config):
        assert outcome(tmp_path / "cut" / name) == outcome(tmp_path / "whole" / name)


def wait_for_growth(folder: Path) -> None:
    """Until the runs there have gone on for some rounds."""

    def size() -> int:
        return sum(path.stat().st_size for path in folder.glob("*/rounds.jsonl"))

    before, deadline = size(), time.monotonic() + 100
    while size() < before + 4000:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_table_has_a_line_for_all_seeds_of_a_setting(tmp_path: Path) -> None:
    config = written(tmp_path / "s.toml", GRID)
    done = CliRunner().invoke(app, ["sweep", str(config), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0
    lines = [line for line in done.output.splitlines() if line.startswith("│")]
    assert [line.split("│")[1].strip() for line in lines] == ["none", "alie"]
    assert all(line.split("│")[2].strip() == "2" for line in lines)


@pytest.mark.parametrize("jobs", ["0", "-1"])
def test_jobs_are_at_least_one(tmp_path: Path, jobs: str) -> None:
    config = written(tmp_path / "s.toml", GRID)
    done = CliRunner().invoke(app, ["sweep", str(config), "--jobs", jobs, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "jobs" in done.output
