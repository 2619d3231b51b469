"""Figure 4: verdicts on the number of local steps."""

import pytest

from fedro.paper import fig4
from paper_cases import planned


@pytest.mark.parametrize(
    ("slope", "verdict"), [(0.01, "held"), (-0.01, "not held"), (0.0, "undecided")]
)
def test_figure_4_verdicts(slope: float, verdict: str) -> None:
    runs = planned("fig4", "desk", only="femnist")
    strength = {"none": 0.0, "alie": 0.0, "mimic": 0.01, "foe": 0.1, "sign_flip": 0.2}
    rows = [
        {
            "dataset": "femnist",
            **settings,
            "accuracy": 0.7
            - strength[settings["attack"]]
            + (slope if strength[settings["attack"]] > 0.05 else 0.0) * settings["local_steps"] / 10
            + (0.01 if settings["seed"] == settings["local_steps"] % 3 else 0.0),
        }
        for settings, _ in runs.panels[0].runs.values()
    ]
    (result,) = fig4.judge(runs, rows)
    assert result.verdict == verdict
    assert "sign flipping, fall of empires" in result.claim
