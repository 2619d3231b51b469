"""The table of results and the heat map of rule × attack."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedro.report.chart import HeatMap
from fedro.report.results import format_ranges, overview_section
from fedro.report.series import ReportData, group_runs
from report_cases import ATTACKS, RULES, SEEDS, charts, lines_of


def test_rule_and_attack_with_the_worst_marked(data: ReportData) -> None:
    heat = charts(data)["rule-attack"].panels[0]
    assert isinstance(heat, HeatMap)
    assert (list(heat.rows), list(heat.columns)) == (list(RULES), list(ATTACKS))
    for row, rule in enumerate(RULES):
        finals = [
            sum(lines_of(data, rule, attack, seed)[-1]["final"]["accuracy"] for seed in SEEDS) / 2
            for attack in ATTACKS
        ]
        assert heat.values[row] == pytest.approx(finals)
        assert finals[heat.worst[row] or 0] == min(finals)
        assert heat.texts[row] == [f"{100 * value:.1f}%" for value in finals]


def test_the_overview_says_task_classes_and_examples(data: ReportData) -> None:
    text = " ".join(overview_section(data).text)
    assert "Data: classification with 10 classes, 1,437 training examples (119 to 120 a" in text
    assert "and 360 test examples (30 a client)." in text
    unknown = [replace(run, data=None) for run in data.runs]
    assert "Data:" not in " ".join(overview_section(group_runs(unknown, [])).text)
    mixed = [replace(data.runs[0], data="other"), *data.runs[1:]]
    assert "Data:" not in " ".join(overview_section(group_runs(mixed, [])).text)


@given(st.sets(st.integers(0, 60)))
def test_ranges_of_rounds(numbers: set[int]) -> None:
    read_back: set[int] = set()
    for part in filter(None, format_ranges(sorted(numbers)).split(", ")):
        first, _, last = part.partition("–")
        read_back.update(range(int(first), int(last or first) + 1))
    assert read_back == numbers
