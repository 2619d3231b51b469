"""The figure of a plan has the plan's values."""

from pathlib import Path

import pytest

import fedro
from fedro.common import figures
from fedro.planning.figure import plan_figure


def test_plan_figure_shows_the_plan() -> None:
    plan = fedro.plan(clients=150, byzantine=15, rounds=500)
    upper, lower = plan_figure(plan).axes
    curve, _, chosen = upper.lines[0], upper.lines[1], upper.lines[2]
    assert (chosen.get_xdata()[0], chosen.get_ydata()[0]) == (27, 1.0)
    values = dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True))
    assert values[15] == 7
    assert values[150] == pytest.approx(0.125)
    assert lower.lines[0].get_ydata()[-1] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "ask",
    [
        {"clients": 1, "byzantine": 0},
        {"clients": 5, "byzantine": 2},
        {"clients": 10**9, "byzantine": 10**8},
    ],
)
def test_plan_figure_of_corner_cases(ask: dict[str, int], tmp_path: Path) -> None:
    plan = fedro.plan(rounds=10, **ask)
    assert figures.save(plan_figure(plan), tmp_path / "plan.svg").exists()
