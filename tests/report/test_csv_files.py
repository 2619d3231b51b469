"""CSV files hold every number of the run folders."""

import csv
from pathlib import Path

import pytest
from scipy.stats import hypergeom

from fedro.report import write_report
from fedro.report.series import ReportData
from fedro.runs import read

pytestmark = pytest.mark.slow  # its tests train models or start processes


def test_tables_hold_every_number(data: ReportData, runs: Path, tmp_path: Path) -> None:
    write_report([runs], tmp_path / "r.html", csv=tmp_path)
    table: dict[str, list[dict[str, str]]] = {}
    for name in ("runs", "rounds", "clients", "unused_replies", "suspects"):
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            table[name] = list(csv.DictReader(file))
    assert [len(table[name]) for name in ("runs", "rounds", "clients")] == [12, 48, 144]
    for row in table["runs"]:
        folder = read(Path(row["folder"]))
        assert folder.summary is not None
        assert float(row["final_accuracy"]) == folder.summary["final"]["accuracy"]
        assert int(row["overruns"]) == folder.summary["overrun"]
        assert float(row["probability_no_overrun"]) == pytest.approx(
            hypergeom(12, 3, 7).cdf(2) ** 4
        )
        assert row["rule"] == folder.config["rule"]
    lines = {
        (str(run.path), line["round"]): line for run in data.runs for line in read(run.path).rounds
    }
    for row in table["rounds"]:
        line = lines[row["folder"], int(row["round"])]
        assert row["train_loss"] == str(line["train_loss"])
        assert int(row["byzantine"]) == len(line["byzantine"])
        assert row["test_loss"] == str(line["score"]["loss"] if "score" in line else "")
    lost = [
        (path, str(number), client, reason)
        for (path, number), line in lines.items()
        for kind in ("rejected", "missing")
        for client, reason in line[kind].items()
    ]
    told = [
        tuple(row[k] for k in ("folder", "round", "client", "reason"))
        for row in table["unused_replies"]
    ]
    assert sorted(told) == sorted(lost)
    assert sum(int(row["invited"]) for row in table["clients"]) == 12 * 4 * 7
