"""Unused replies, void rounds, takeovers and chosen attacks."""

import json
from itertools import product
from pathlib import Path

import pytest

from fedro.report.chart import Panel
from fedro.report.csv_files import csv_files
from fedro.report.results import format_ranges
from fedro.report.run_data import find_runs
from fedro.report.series import ReportData, group_runs
from fedro.runs import read
from report_cases import BASE, RULES, SEEDS, charts, copy, edit, lines_of, section, train


def test_the_ledger_has_every_reply_that_was_not_used(data: ReportData) -> None:
    chart = charts(data)["replies"]
    for rule, (kind, attack) in product(RULES, (("rejected", "nan"), ("missing", "silent"))):
        panel = next(panel for panel in chart.panels if panel.title == f"{rule} · {attack}")
        assert isinstance(panel, Panel)
        events = sorted(
            (line["round"], int(client))
            for seed in SEEDS
            for line in lines_of(data, rule, attack, seed)
            for client in line[kind]
        )
        assert events
        assert [trace.name for trace in panel.traces] == [kind]
        assert sorted(zip(panel.traces[0].x, panel.traces[0].y, strict=True)) == events
    by_reason = section(data, "replies").tables[0]
    assert {tuple(row[1:3]) for row in by_reason.rows} == {
        ("rejected", "holds NaN or Inf"),
        ("missing", "did not answer"),
    }
    quiet = group_runs([run for run in data.runs if run.config["attack"] == "alie"])
    told = section(quiet, "replies").text
    assert {"No reply was rejected.", "No reply was missing."} <= set(told)


@pytest.mark.slow
def test_void_rounds_and_takeovers_are_told(tmp_path: Path) -> None:
    train(tmp_path / "a", BASE.replace(attack="nan", sampled=6, rounds=8))
    train(tmp_path / "b", BASE.replace(attack="takeover", tolerated=1, rounds=8))
    tables = section(group_runs(*find_runs([tmp_path])), "replies").tables
    rows = {table.header[2]: table.rows for table in tables if len(table.header) == 5}
    for name, key in (("a", "void"), ("b", "takeover")):
        which = [line["round"] for line in read(tmp_path / name).rounds if line[key]]
        told = rows["void rounds" if key == "void" else "takeovers"]
        assert [row[3] for row in told] == [format_ranges(which)]


def test_what_worst_chose_is_shown(one: Path) -> None:
    data = group_runs(*find_runs([one]))
    trace = charts(data)["choices"].panels[0].traces[0]  # type: ignore[union-attr]
    chosen = [(line["round"], line["attack"]) for line in read(one).rounds if line["attack"]]
    assert list(zip(trace.x, trace.y, strict=True)) == chosen


@pytest.mark.slow
def test_a_run_that_came_to_nothing_says_why(tmp_path: Path) -> None:
    path = train(tmp_path / "run", BASE.replace(client_lr=1e30, local_steps=4))
    data = group_runs(*find_runs([path]))
    problem = str((read(path).summary or {})["problem"])
    assert "client_lr=1e+30 is too large" in problem
    part = section(data, "replies")
    listed = [row for table in part.tables for row in table.rows]
    assert [data.series[0].name, "0", problem] in listed
    assert data.notes == [f"{data.series[0].name}, seed 0: {problem}"]
    table = next(table for table in part.tables if "not finite" in table.header[2])
    assert table.rows == [[data.series[0].name, "0", "4 of 4", "0–3", table.rows[0][4]]]
    assert csv_files(data)["runs.csv"].count("client_lr=1e+30 is too large") == 1


def test_older_runs_have_neither(one: Path, tmp_path: Path) -> None:
    path = edit(copy(one, tmp_path / "run"), lambda line: line.pop("diverged"))
    summary = json.loads((path / "summary.json").read_text())
    del summary["problem"]
    (path / "summary.json").write_text(json.dumps(summary))
    part = section(group_runs(*find_runs([path])), "replies")
    assert not any("not finite" in table.header[2] for table in part.tables)
