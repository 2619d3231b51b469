"""Byzantine clients in each round, invitations and examples."""

import json
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import hypergeom

from fedro.report.chart import Panel
from fedro.report.run_data import find_runs
from fedro.report.series import ReportData, group_runs
from fedro.runs import read
from report_cases import SEEDS, charts, copy, lines_of, section


def test_bad_clients_against_what_is_tolerated(data: ReportData) -> None:
    panel = charts(data)["byzantine-clients"].panels[0]
    assert isinstance(panel, Panel)
    counts = {
        (line["round"], len(line["byzantine"]))
        for seed in SEEDS
        for line in lines_of(data, "mean", "alie", seed)
    }
    shown: dict[str, set[Any]] = {
        trace.name: set(zip(trace.x, trace.y, strict=True)) for trace in panel.traces
    }
    assert shown["at most b̂"] | shown.get("more than b̂", set()) == counts
    assert all(bad <= 2 for _, bad in shown["at most b̂"])
    table = section(data, "byzantine").tables[0]
    safe = hypergeom(12, 3, 7).cdf(2) ** 4
    assert table.rows[0][:5] == ["12", "3", "7", "2", "4"]
    assert table.rows[0][5] == f"{100 * safe:.0f}%"
    over = sum(
        len(line["byzantine"]) > 2
        for seed in SEEDS
        for line in lines_of(data, "mean", "alie", seed)
    )
    assert table.rows[0][7] == f"{over} of 8"


def test_invitations_and_examples(data: ReportData) -> None:
    drawn = charts(data)
    panel = drawn["invitations"].panels[0]
    assert isinstance(panel, Panel)
    total = [0] * 12
    for seed in SEEDS:
        for line in lines_of(data, "mean", "alie", seed):
            for client in line["sampled"]:
                total[client] += 1
    honest, bad, expected = panel.traces
    assert [a + b for a, b in zip(honest.y, bad.y, strict=True)] == total  # type: ignore[operator]
    assert expected.y == [8 * 7 / 12] * 2
    summaries = [read(run.path).summary for run in data.series[0].runs]
    sizes = [summary["examples"] for summary in summaries if summary]
    trace = drawn["examples"].panels[0].traces[0]  # type: ignore[union-attr]
    assert trace.y == pytest.approx([sum(column) / 2 for column in zip(*sizes, strict=True)])


def test_older_folders_do_not_tell_examples(one: Path, tmp_path: Path) -> None:
    old = copy(one, tmp_path / "old")
    summary = json.loads((old / "summary.json").read_text())
    del summary["examples"]
    (old / "summary.json").write_text(json.dumps(summary))
    data = group_runs(*find_runs([old]))
    assert "examples" not in charts(data)
    assert section(data, "clients").text
