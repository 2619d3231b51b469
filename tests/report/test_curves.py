"""Charts over rounds show the numbers of the run folders."""

import math
from pathlib import Path
from typing import Any

import pytest

from fedro.report import write_report
from fedro.report.chart import Panel
from fedro.report.page import render_page, report_sections
from fedro.report.run_data import find_runs
from fedro.report.series import ReportData, group_runs
from fedro.runs import read
from report_cases import ATTACKS, BASE, RULES, SEEDS, charts, copy, data_of, edit, lines_of, train

pytestmark = pytest.mark.slow  # its tests train models or start processes


def test_a_run_that_was_never_evaluated(tmp_path: Path) -> None:
    data = group_runs(*find_runs([train(tmp_path / "run", BASE, rounds=1)]))
    assert not {"accuracy", "fairness", "loss"} & charts(data).keys()
    assert "train-loss" in charts(data)
    assert render_page(data, report_sections(data))


EVERY_ROUND = ("train-loss", "kappa")


@pytest.mark.parametrize(
    ("key", "measure", "value"),
    [
        ("accuracy", "", lambda line: line.get("score", {}).get("accuracy")),
        ("fairness", "mean client", lambda line: line.get("score", {}).get("clients")),
        ("fairness", "worst tenth", lambda line: line.get("score", {}).get("worst")),
        ("loss", "", lambda line: line.get("score", {}).get("loss")),
        ("train-loss", "", lambda line: line["train_loss"]),
        ("kappa", "κ proved for the rule", lambda line: line["kappa_proved"]),
    ],
)
def test_charts_over_rounds_are_the_lines_of_the_folders(
    data: ReportData, key: str, measure: str, value: Any
) -> None:
    chart = charts(data)[key]
    assert [panel.title for panel in chart.panels] == list(ATTACKS)
    for panel in chart.panels:
        assert isinstance(panel, Panel)
        for rule in RULES:
            given = [
                trace for trace in panel.traces if (trace.name, trace.measure) == (rule, measure)
            ]
            every = [lines_of(data, rule, panel.title, seed) for seed in SEEDS]
            table = [[value(lines[i]) for lines in every] for i in range(4)]
            if not any(number is not None for row in table for number in row):
                assert given == []
                continue
            rounds = [i for i in range(4) if "score" in every[0][i] or key in EVERY_ROUND]
            assert list(given[0].x) == rounds
            known = [[v for v in table[i] if v is not None] for i in rounds]
            means = [sum(row) / len(row) if row else None for row in known]
            assert given[0].y == pytest.approx(means, rel=1e-12)
            assert given[0].low == [min(row, default=None) for row in known]
            assert given[0].high == [max(row, default=None) for row in known]


def test_kappa_seen_is_drawn_but_for_zeros(data: ReportData) -> None:
    chart = charts(data)["kappa"]
    for panel in chart.panels:
        assert isinstance(panel, Panel)
        for trace in panel.traces:
            if trace.measure != "κ seen":
                continue
            every = [lines_of(data, trace.name, panel.title, seed) for seed in SEEDS]
            for number, shown in zip(trace.x, trace.y, strict=True):
                row = [lines[int(number)]["kappa_seen"] for lines in every]
                known = [value for value in row if value is not None]
                wanted = sum(known) / len(known) if known else None
                zero = wanted == 0 and panel.y.log
                assert shown == (None if zero or wanted is None else pytest.approx(wanted))


def test_one_seed_is_drawn_to_the_bit(one: Path) -> None:
    drawn = charts(group_runs(*find_runs([one])))
    lines = read(one).rounds
    trace = drawn["kappa"].panels[0].traces[0]  # type: ignore[union-attr]
    shown = dict(zip(trace.x, trace.y, strict=True))
    assert trace.low is None
    assert shown == {line["round"]: line["kappa_seen"] or None for line in lines}
    time = drawn["time"].panels[0]
    assert isinstance(time, Panel)
    unit = 1000 if time.x.title.startswith("milliseconds") else 1
    for part in time.traces:
        mean = sum(line["seconds"][part.name] for line in lines[1:]) / 3
        assert float(part.x[0]) == pytest.approx(unit * mean)


def test_a_backdoor_is_shown(tmp_path: Path) -> None:
    path = train(tmp_path / "run", BASE.replace(attack="backdoor", rounds=2))
    trace = charts(group_runs(*find_runs([path])))["backdoor"].panels[0].traces[0]  # type: ignore[union-attr]
    assert trace.y == [read(path).rounds[-1]["score"]["backdoor"]]


def test_numbers_that_are_not_finite_are_gaps(one: Path, tmp_path: Path) -> None:
    def blow_up(line: dict[str, Any]) -> None:
        line["train_loss"] = math.nan if line["round"] == 2 else line["train_loss"]
        line["kappa_seen"] = math.inf
        line["kappa_proved"] = None
        if "score" in line:
            line["score"]["loss"] = None

    data = group_runs(*find_runs([edit(copy(one, tmp_path / "run"), blow_up)]))
    drawn = charts(data)
    assert not {"loss", "kappa"} & drawn.keys()
    trace = drawn["train-loss"].panels[0].traces[0]  # type: ignore[union-attr]
    assert trace.y[2] is None
    assert all(value is not None for i, value in enumerate(trace.y) if i != 2)
    assert "NaN" not in data_of(render_page(data, report_sections(data)))


def test_numbers_below_zero_are_drawn(one: Path, tmp_path: Path) -> None:
    path = edit(copy(one, tmp_path / "run"), lambda line: line.update({"train_loss": -1.0}))
    files = write_report([path], tmp_path / "r.html", png=tmp_path).files
    trace = charts(group_runs(*find_runs([path])))["train-loss"].panels[0].traces[0]  # type: ignore[union-attr]
    assert list(trace.y) == [-1.0] * 4
    assert len(files) > 1
