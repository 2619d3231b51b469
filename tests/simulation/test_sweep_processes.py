"""Sweeps: every run gives the result it gives alone, and none is lost, whatever fails."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedro.common.text import to_toml
from fedro.runs import RunFolderError, read
from fedro.simulation.experiment import Experiment
from fedro.simulation.recording import run_into
from fedro.simulation.sweeps import expand, read_sweep, run_sweep, sweep
from run_cases import invoke, outcome

pytestmark = pytest.mark.slow  # its tests train models or start processes

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


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of the grid, each made alone in this process."""
    folder = tmp_path_factory.mktemp("alone")
    for name, experiment in expand(GRID).items():
        list(run_into(folder / name, experiment))
    return folder


@pytest.fixture
def finished(alone: Path, tmp_path: Path) -> Path:
    """A copy of the finished runs, to sweep in."""
    return Path(shutil.copytree(alone, tmp_path / "finished"))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../other", "/tmp/other", "a/b", "lock", "log.txt"]
)
def test_names_of_your_own_stay_in_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a run folder"):
        sweep({name: Experiment(**SMALL)}, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="the same folder on some disks"):
        sweep({"net": Experiment(**SMALL), "Net": Experiment(**SMALL)}, tmp_path / "out")


def test_a_sweep_gives_the_bits_of_its_runs_alone(alone: Path, tmp_path: Path) -> None:
    experiments = expand(GRID)
    outcomes = sweep(experiments, tmp_path / "sweep", jobs=2)
    assert list(outcomes) == list(experiments)
    for name in experiments:
        assert outcome(tmp_path / "sweep" / name) == outcome(alone / name)
        assert outcomes[name].summary == read(tmp_path / "sweep" / name).summary


@pytest.mark.slow
def test_finished_runs_are_kept_and_interrupted_ones_resumed(alone: Path, tmp_path: Path) -> None:
    experiments = expand(GRID)
    first, second = list(experiments)[:2]
    list(run_into(tmp_path / first, experiments[first]))
    begun = run_into(tmp_path / second, experiments[second])
    for _ in range(3):
        next(begun)
    begun.close()
    before = (tmp_path / first / "summary.json").stat().st_mtime_ns
    events = list(run_sweep(experiments, tmp_path, jobs=1))
    assert events[0].name == first
    assert events[0].outcome is not None
    assert (tmp_path / first / "summary.json").stat().st_mtime_ns == before
    for name in experiments:
        assert outcome(tmp_path / name) == outcome(alone / name)


@pytest.mark.slow
def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch) -> None:
    """One fails by a mistake in the experiment, one in the user's code, one with its process."""
    (tmp_path / "broken.py").write_text("def make(shape, classes):\n    return 1 / 0\n")
    (tmp_path / "fatal.py").write_text(
        "import os, signal\n\ndef make(shape, classes):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    small = Experiment(**SMALL)
    experiments = {
        "mistake": small.replace(rule="nonsense"),
        "broken": small.replace(model="broken:make"),
        "fatal": small.replace(model="fatal:make"),
        "fine": small,
    }
    outcomes = sweep(experiments, "out", jobs=1)
    assert str(outcomes["mistake"].error).startswith("unknown rule 'nonsense'")
    assert "division by zero" in str(outcomes["broken"].error)
    assert "killed by signal 9" in str(outcomes["fatal"].error)
    assert outcomes["fine"].summary is not None
    assert read(Path("out/fine")).finished
    assert all(outcomes[name].summary is None for name in ("mistake", "broken", "fatal"))


@pytest.mark.slow
def test_failures_are_shown_with_exit_code_1_even_if_quiet(tmp_path: Path) -> None:
    config = written(tmp_path / "s.toml", {**SMALL, "model": ["femnist_cnn"], "seed": [0, 1]})
    arguments = ["sweep", config, "--out", tmp_path / "out", "--jobs", 1]
    done = invoke(*arguments, "--quiet")
    assert done.exit_code == 1
    assert "model=femnist_cnn,seed=0: model femnist_cnn takes images" in done.stderr
    assert not done.stdout
    assert "Traceback" in (tmp_path / "out" / "log.txt").read_text()
    done = invoke(*arguments)
    assert done.exit_code == 1
    assert "2 runs failed: model femnist_cnn takes images" in done.output
    assert "2 of 2 runs failed" in done.output


def test_a_misspelt_rule_fails_before_the_first_run(tmp_path: Path) -> None:
    config = written(tmp_path / "s.toml", {**SMALL, "rule": ["mean", "medain"], "seed": [0, 1]})
    done = invoke("sweep", config, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert f"{config}: in the run rule=medain,seed=0: rule='medain': unknown rule" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_another_experiment_in_the_folder_is_refused(finished: Path) -> None:
    other = {name: each.replace(rounds=9) for name, each in expand(GRID).items()}
    with pytest.raises(RunFolderError, match="rounds: 6 in the run, 9 given now"):
        sweep(other, finished)


@pytest.mark.slow
@pytest.mark.soak
def test_a_second_sweep_in_the_folder_is_refused(tmp_path: Path) -> None:
    experiments = expand({**SMALL, "rounds": 10**6, "seed": [0]})
    events = run_sweep(experiments, tmp_path, jobs=1)
    next(events)
    try:
        with pytest.raises(RunFolderError, match="in use by process"):
            sweep(experiments, tmp_path)
    finally:
        events.close()
    assert read(tmp_path / "seed=0").rounds  # those before the stop are saved


@pytest.mark.slow
@pytest.mark.soak
def test_a_sweep_of_inline_runs_resumes_however_few_are_left(tmp_path: Path) -> None:
    experiments = expand({**SMALL, "engine": "inline", "rounds": 30, "seed": [0, 1]})
    events = run_sweep(experiments, tmp_path, jobs=2)
    next(event for event in events if event.outcome is not None)
    events.close()
    assert all(each.error is None for each in sweep(experiments, tmp_path, jobs=2).values())


@pytest.mark.slow
@pytest.mark.soak
def test_a_run_whose_model_ignores_interrupts_is_saved(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "deaf.py").write_text(
        "import signal\nfrom torch import nn\n\n"
        "def make(shape, classes):\n"
        "    signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    endless = {**SMALL, "model": "deaf:make", "rounds": 10**6, "checkpoint_every": 10**6}
    events = run_sweep({"deaf": Experiment(**endless)}, Path("out"))
    next(events)
    events.close()
    assert list(Path("out/deaf/checkpoints").iterdir())


def test_a_damaged_run_does_not_stop_the_others(finished: Path) -> None:
    (finished / "attack=none,seed=0" / "summary.json").write_text("{")
    damaged, *others = sweep(expand(GRID), finished).values()
    assert "summary.json is damaged" in str(damaged.error)
    assert all(other.summary is not None for other in others)


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that takes long enough to be killed, and its runs made alone."""
    folder = tmp_path_factory.mktemp("longer")
    config = written(folder / "sweep.toml", {**SMALL, "seed": [0, 1], "rounds": 250})
    for name, experiment in read_sweep(config).items():
        list(run_into(folder / name, experiment))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGTERM, marks=pytest.mark.soak), signal.SIGKILL]
)
def test_a_sweep_that_is_killed_ends_with_the_same_results(
    longer: Path, tmp_path: Path, how: int
) -> None:
    command = [sys.executable, "-m", "fedro", "sweep", longer / "sweep.toml", "--jobs", "2"]
    command += ["--out", tmp_path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_for_growth(tmp_path)
        os.kill(process.pid, how)
        printed = process.communicate(timeout=100)[0].decode()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == (-how if how == signal.SIGKILL else 130)
    assert ("Run the same command again to continue" in printed) == (how != signal.SIGKILL)
    assert not any(read(path.parent).finished for path in tmp_path.glob("*/run.json"))
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    for name in read_sweep(longer / "sweep.toml"):
        assert outcome(tmp_path / name) == outcome(longer / name)


def wait_for_growth(folder: Path) -> None:
    """Wait until the runs in a folder have recorded some rounds."""

    def size() -> int:
        return sum(path.stat().st_size for path in folder.glob("*/rounds.jsonl"))

    before, deadline = size(), time.monotonic() + 100
    while size() < before + 4000:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_table_has_one_line_for_all_seeds_of_a_setting(finished: Path) -> None:
    config = written(finished.parent / "s.toml", GRID)
    done = invoke("sweep", config, "--out", finished)
    assert done.exit_code == 0
    lines = [line for line in done.output.splitlines() if line.startswith("│")]
    assert [line.split("│")[1].strip() for line in lines] == ["none", "alie"]
    assert all(line.split("│")[2].strip() == "2" for line in lines)


@pytest.mark.parametrize("jobs", ["0", "-1"])
def test_jobs_are_at_least_one(tmp_path: Path, jobs: str) -> None:
    config = written(tmp_path / "s.toml", GRID)
    done = invoke("sweep", config, "--jobs", jobs, "--out", tmp_path)
    assert done.exit_code == 2
    assert "jobs" in done.output
