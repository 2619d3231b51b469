"""The page holds all numbers and configurations, and no text of a run can do harm."""

import csv
import html
import json
import re
from pathlib import Path

import plotly.graph_objects as go
import pytest

from fedro.report import write_report
from fedro.report.chart import Chart, Panel, Section, Trace
from fedro.report.page import render_page, report_sections
from fedro.report.plotly_charts import plotly_panels
from fedro.report.series import ReportData
from report_cases import (
    HOSTILE,
    charts,
    data_of,
)


def test_the_page_holds_what_the_charts_say(data: ReportData) -> None:
    parts = report_sections(data)
    drawn = json.loads(data_of(render_page(data, parts)))["plots"]
    for part in parts:
        for chart in part.charts:
            for number, plot in enumerate(plotly_panels(chart)):
                same = json.loads(json.dumps(plot, default=list))
                assert drawn[f"{chart.key}-{number}"] == {"chart": chart.key, **same}
                go.Figure(data=same["data"], layout=same["layout"])  # Plotly knows every key


def test_every_run_can_be_run_again(data: ReportData) -> None:
    text = render_page(data, report_sections(data))
    configs = [
        html.unescape(c) for c in re.findall(r'<pre id="config-\d+-\d+">(.*?)</pre>', text, re.S)
    ]
    assert sorted(configs) == sorted((run.path / "config.toml").read_text() for run in data.runs)
    assert "fedro run config.toml" in text
    assert data.runs[0].fingerprint["data"] in text


@pytest.mark.slow
def test_what_runs_say_is_text_and_nothing_else(spoilt: Path, tmp_path: Path) -> None:
    files = write_report([spoilt], tmp_path / "r.html", png=tmp_path, csv=tmp_path).files
    text = files[0].read_text()
    ours = text[: text.index('<script type="application/json"')]
    assert "<script" not in ours
    assert "<img" not in ours
    assert "onerror=alert(2)&gt;" in ours
    assert "<" not in data_of(text)
    assert text.count("</script>") - text.count("<script") == 0
    for plot in json.loads(data_of(text))["plots"].values():
        for trace in plot["data"]:
            trace.pop("meta")  # which the script compares, and nobody shows
        assert "<script" not in json.dumps(plot)
    with (tmp_path / "unused_replies.csv").open(newline="") as file:
        assert {row["reason"] for row in csv.DictReader(file)} == {HOSTILE}


def test_a_large_page_is_thinned_and_says_so(data: ReportData) -> None:
    parts = report_sections(data)
    small = render_page(data, parts, limit=len(data_of(render_page(data, parts))))
    assert "To keep this page small" not in small
    long = Trace("a", list(range(1001)), [float(i) for i in range(1001)])
    panel = Panel("", [long], *(charts(data)["accuracy"].panels[0].x,) * 2)  # type: ignore[union-attr]
    part = Section("s", "t", "l", charts=[Chart("c", "t", "", [panel])])
    text = render_page(data, [part], limit=5000)
    match = re.search(r"at most (\d+) of up to 1001 points", text)
    assert match
    shown = json.loads(data_of(text))["plots"]["c-0"]["data"][0]
    assert len(shown["x"]) == int(match[1])
    assert (shown["x"][0], shown["x"][-1]) == (0, 1000)
    assert shown["x"] == shown["y"]
    assert len(data_of(text)) <= 5000
