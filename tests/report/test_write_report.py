"""`write_report` and the command `fedro report`."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedro.cli import app
from fedro.report import write_report
from fedro.report.chart import HeatMap
from fedro.report.run_data import find_runs
from fedro.report.series import group_runs
from fedro.simulation.experiment import Experiment
from report_cases import charts, copy, section, train


def test_a_run_without_any_round(tmp_path: Path, one: Path) -> None:
    path = copy(one, tmp_path / "run")
    (path / "summary.json").unlink()
    (path / "rounds.jsonl").write_text("")
    files = write_report([path], tmp_path / "r.html", png=tmp_path, csv=tmp_path).files
    assert all(file.stat().st_size for file in files)


@pytest.mark.slow
def test_nobody_bad_and_no_classes(tmp_path: Path) -> None:
    for seed in (0, 1):
        experiment = Experiment(
            dataset="synthetic(dim=3, samples=8)", rounds=3, evaluate_every=1, seed=seed
        )
        train(tmp_path / str(seed), experiment)
        train(tmp_path / f"mean-{seed}", experiment.replace(rule="mean"))
    write_report([tmp_path], tmp_path / "r.html", png=tmp_path, csv=tmp_path)
    data = group_runs(*find_runs([tmp_path]))
    assert section(data, "byzantine").text == ["These runs have no Byzantine clients."]
    assert "accuracy" not in charts(data)
    heat = charts(data)["rule-attack"].panels[0]
    assert isinstance(heat, HeatMap)
    assert heat.measure == "test loss"
    assert [run.clients for run in data.runs] == [10] * 4  # from the data: no key says it


def test_the_command(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "report.html"
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(
        app, ["report", str(runs), str(tmp_path / "empty"), "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert str(out) in done.stdout.replace("\n", "")
    assert "empty contains no run folder" in done.stderr
    assert [file.name for file in out.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}/nowhere"], "nowhere is not a folder"),
        (["{}/empty"], "no runs found"),
        (["{runs}", "--out", "{}/folder.html"], "cannot write {}/folder.html: Is a directory"),
        (["{runs}", "--out", "{}/x.pdf"], "page to {}/x.pdf: the name must end in .html; --png"),
        (["{runs}", "--out", "{}/x"], "the name must end in .html"),
        (["{runs}", "--out", "/no-such-folder/x.html"], "would create the folder /no-such-folder"),
        (["{runs}", "--out", "{}/x.html", "--png", "/no-such-folder"], "check the path, or create"),
        (["{runs}", "--out", "{}/x.html", "--csv", "/no-such-folder/a"], "at the root"),
        (["{runs}", "--out", "{}/file/x.html"], "cannot write {}/file/x.html"),
    ],
)
def test_errors_are_told(arguments: list[str], message: str, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").write_text("")
    given = [text.format(tmp_path, runs=runs) for text in arguments]
    done = CliRunner().invoke(app, ["report", *given])
    assert done.exit_code == 2
    assert message.format(tmp_path) in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "folder.html"]
