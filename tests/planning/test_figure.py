"""The figure of a plan has the plan's values."""

from pathlib import Path
from typing import Any

import pytest

import fedro
from fedro.common import figures
from fedro.planning.figure import plan_figure, scenarios_figure


def test_plan_figure_shows_the_plan() -> None:
    plan = fedro.plan(clients=150, byzantine=15, rounds=500)
    upper, lower = plan_figure(plan).axes
    best, proved, chosen = upper.lines
    assert (chosen.get_xdata()[0], chosen.get_ydata()[0]) == (27, 4.0)
    for curve, factor in ((best, 1), (proved, 4)):
        values = dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True))
        assert values[15] == pytest.approx(factor * 7)
        assert values[150] == pytest.approx(factor * 0.125)
    assert [text.get_text() for text in upper.get_legend().texts] == [
        "best possible, r",
        "proved for nnm | trimmed_mean",
    ]
    assert lower.lines[0].get_ydata()[-1] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "ask",
    [
        {"clients": 1, "byzantine": 0},
        {"clients": 5, "byzantine": 2},
        {"clients": 10**9, "byzantine": 10**8},
        {"clients": 150, "byzantine": 15, "rule": "centered_clipping"},
    ],
)
def test_plan_figure_of_corner_cases(ask: dict[str, Any], tmp_path: Path) -> None:
    plan = fedro.plan(rounds=10, **ask)
    assert figures.save(plan_figure(plan), tmp_path / "plan.svg").exists()


def test_the_figure_of_scenarios_shows_their_plans() -> None:
    upper, lower = scenarios_figure(fedro.scenarios(clients=150, rounds=500)).axes
    sampled, tolerated = upper.lines
    assert list(sampled.get_ydata())[3] == 27
    assert list(tolerated.get_ydata())[3] == 9
    best, proved = lower.lines
    assert (list(best.get_ydata())[3], list(proved.get_ydata())[3]) == (1.0, 4.0)
    hopeless = fedro.scenarios(clients=10, rounds=500, byzantine=["50%"])
    with pytest.raises(ValueError, match="there is no plan to draw"):
        scenarios_figure(hopeless)
