"""The table of results and the heat map of rule × attack."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedro.report.chart import HeatMap
from fedro.report.results import format_ranges
from fedro.report.series import ReportData
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


@given(st.sets(st.integers(0, 60)))
def test_ranges_of_rounds(numbers: set[int]) -> None:
    read_back: set[int] = set()
    for part in filter(None, format_ranges(sorted(numbers)).split(", ")):
        first, _, last = part.partition("–")
        read_back.update(range(int(first), int(last or first) + 1))
    assert read_back == numbers
