"""The report on a run of real clients: what nobody can know is said to be unknown."""

import csv

import pytest

from fake_flower import FakeGrid, honest, raises
from fedro.report import write_report
from fedro.report.run_data import load_run
from fedro.runs import read
from fedro.simulation.experiment import Experiment
from fedro.simulation.recording import run_into
from flower_cases import BAD, start, strategy


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "flower"
    grid = FakeGrid(20, {0: BAD["nan"], 1: raises}, honest(1.0, eval_acc=0.7, eval_loss=0.5))
    start(strategy(folder=path, evaluate_clients=9), grid, 6)
    return path


@pytest.mark.slow
def test_the_report_tells_what_is_not_known(run, tmp_path):
    found = load_run(run)
    assert (found.byzantine_known, found.overruns) == (False, None)
    write_report([run], tmp_path / "r.html", png=tmp_path / "png", csv=tmp_path / "csv")
    page = (tmp_path / "r.html").read_text()
    assert "it is unknown which of them were Byzantine" in page
    assert "unknown" in page
    assert "while honest" not in page
    assert "Most of this time the server waits for replies" in page
    assert "fedro run config.toml" not in page
    assert "attack unknown" in page
    assert "so <code>fedro run</code> cannot repeat it" in page
    for invented in ("batch_size", "momentum", "local_steps"):  # what the clients never told
        assert invented not in page
    assert found.seed == int(read(run).summary["seed"])
    for name in ("unused_replies.csv", "clients.csv"):
        with (tmp_path / "csv" / name).open() as file:
            assert {row["byzantine"] for row in csv.DictReader(file)} == {""}


@pytest.mark.slow
def test_simulated_and_deployed_runs_stand_side_by_side(run, tmp_path):
    given = {"clients": 20, "byzantine": 2, "sampled": 7, "tolerated": 2, "rounds": 6}
    for _ in run_into(run.parent / "simulated", Experiment(**given, attack="sign_flip")):
        pass
    write_report([run.parent], tmp_path / "r.html", csv=tmp_path / "csv")
    with (tmp_path / "csv" / "runs.csv").open() as file:
        over = {row["dataset"]: row["overruns"] for row in csv.DictReader(file)}
    assert over == {"flower": "", "digits": "0"}
