"""The section on suspects shows every client against the honest bulk, and nothing that is empty."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import fedro
from fedro.report import write_report
from fedro.report.chart import Panel
from fedro.report.run_data import find_runs, load_run
from fedro.report.series import ReportData, group_runs
from fedro.runs import RunFolderError
from report_cases import BASE, charts, copy, data_of, edit, section, train
from suspect_cases import against, rounds_of

BAD = (3, 7, 11)


def grouped(*paths: Path) -> ReportData:
    return group_runs(*find_runs(list(paths)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short runs to which evidence is given."""
    folder = tmp_path_factory.mktemp("trained")
    for attack in ("alie", "sign_flip"):
        train(folder / attack, BASE.replace(attack=attack, clients=20, sampled=12))
    return folder


def with_evidence(folder: Path, to: Path, **options: Any) -> Path:
    """The run with as many rounds as the evidence, each a copy of a line that it has."""
    path = copy(folder, to)
    given = rounds_of(40, **options)
    lines = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    more = [{**lines[number % len(lines)], **line} for number, line in enumerate(given)]
    (path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in more))
    return path


def traces(panel: Panel) -> dict[str, Any]:
    return {trace.name: trace for trace in panel.traces}


@pytest.fixture
def attacked(trained: Path, tmp_path: Path) -> Path:
    """One attack that shows, one that does not."""
    runs = tmp_path / "runs"
    runs.mkdir()
    with_evidence(trained / "sign_flip", runs / "a", cosine=against(*BAD), byzantine=BAD)
    with_evidence(trained / "alie", runs / "b", copying=(1, 2, 4), byzantine=(1, 2, 4, 9))
    return runs


def test_every_client_is_a_point(attacked: Path) -> None:
    data = grouped(attacked)
    copies, flips = charts(data)["suspects"].panels
    assert isinstance(copies, Panel)
    assert isinstance(flips, Panel)
    assert flips.title == "sign_flip: precision 100%, recall 100%"
    assert copies.y == flips.y  # the same scale
    assert copies.title == "alie: precision 100%, recall 75%"
    points = traces(flips)
    assert len(points["honest"].x) == 17
    suspects = points["Byzantine, suspect"]
    assert suspects.crosses
    assert not points["honest"].crosses
    assert len(suspects.x) == 3
    assert max(suspects.y) < points["honest bulk"].low[0]
    low, high = points["honest bulk"].low[0], points["honest bulk"].high[0]
    assert low < 1 < high
    assert all(low < y < high for y in points["honest"].y)
    assert set(traces(copies)) == {"honest bulk", "honest", "Byzantine", "Byzantine, suspect"}
    assert len(traces(copies)["Byzantine"].x) == 1
    assert any("client 3, seed 0" in text and "slope -" in text for text in suspects.text)


def test_tables_and_csv(attacked: Path, tmp_path: Path) -> None:
    overview, suspects = section(grouped(attacked), "suspects").tables
    assert list(overview.rows) == [
        ["alie", "1", "3", "2", "4", "3", "100%", "75%"],
        ["sign_flip", "1", "3", "3", "3", "3", "100%", "100%"],
    ]
    assert sorted(int(row[2]) for row in suspects.rows) == [1, 2, 3, 4, 7, 11]
    write_report([attacked], tmp_path / "r.html", png=tmp_path, csv=tmp_path)
    assert (tmp_path / "suspects.png").stat().st_size > 1000
    with (tmp_path / "suspects.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    flagged = [row for row in rows if row["flagged"] == "True"]
    for folder in ("a", "b"):
        report = fedro.suspects(attacked / folder)
        mine = [row for row in flagged if row["folder"].endswith(f"/{folder}")]
        assert sorted(int(row["client"]) for row in mine) == report.suspects
        assert {row["since"] for row in mine} <= {str(c.since) for c in report.clients}
    assert len(rows) == 40


def test_the_page_draws_crosses_and_names_clients(attacked: Path, tmp_path: Path) -> None:
    page = write_report([attacked], tmp_path / "r.html").files[0].read_text()
    assert '<section id="suspects">' in page
    assert "<h2>Who lies?</h2>" in page
    plots = json.loads(data_of(page))["plots"]
    marks = [item for item in plots["suspects-1"]["data"] if "marker" in item]
    crosses = [item for item in marks if item["marker"].get("symbol") == "x"]
    assert [item["name"] for item in crosses] == ["Byzantine, suspect"]
    assert crosses[0]["hovertemplate"] == "%{text}<extra></extra>"


def test_without_evidence_there_is_no_section(trained: Path, tmp_path: Path) -> None:
    older = edit(copy(trained / "alie", tmp_path / "old"), lambda line: line.pop("evidence"))
    assert "suspects" not in charts(grouped(older))
    with pytest.raises(StopIteration):
        section(grouped(older), "suspects")
    void = edit(copy(trained / "alie", tmp_path / "void"), lambda line: line.update(evidence=None))
    assert "suspects" not in charts(grouped(void))
    files = write_report([older], tmp_path / "r.html", csv=tmp_path, png=tmp_path).files
    assert "suspects.png" not in [path.name for path in files]
    assert (tmp_path / "suspects.csv").read_text().startswith("folder,seed,client,")


def test_too_little_evidence_is_said_and_not_drawn(trained: Path, tmp_path: Path) -> None:
    no_copies = edit(
        copy(trained / "alie", tmp_path / "run"), lambda line: line["evidence"].update(copies=[])
    )
    part = section(grouped(no_copies), "suspects")  # four rounds
    assert "4 rounds with evidence; the first decision is after 10" in " ".join(part.text)
    assert not part.charts


def test_a_deployment_shows_nodes_and_no_truth(trained: Path, tmp_path: Path) -> None:
    path = with_evidence(trained / "alie", tmp_path / "run", cosine=against(*BAD), byzantine=None)
    ledger = {str(2**63 + number): {"number": number, "since": 0} for number in range(20)}
    (path / "ledger.json").write_text(json.dumps(ledger))
    data = grouped(path)
    (panel,) = charts(data)["suspects"].panels
    assert isinstance(panel, Panel)
    assert panel.title.endswith(": 3 suspects")
    assert set(traces(panel)) == {"honest bulk", "not suspect", "suspect"}
    assert any(f"node {2**63 + 3}" in text for text in traces(panel)["suspect"].text)
    assert "precision" not in section(data, "suspects").tables[0].header


def test_damaged_evidence_is_a_damaged_run(trained: Path, tmp_path: Path) -> None:
    def spoil(line: dict[str, Any]) -> None:
        line["evidence"]["clients"] = [10**15]

    path = edit(copy(trained / "alie", tmp_path / "run"), spoil)
    with pytest.raises(RunFolderError, match=r"round 0 of rounds\.jsonl has no valid evidence"):
        load_run(path)
