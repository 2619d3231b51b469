"""Figure 3: verdicts on the cost of attacks and on the exact tolerance."""

import pytest

from fedro.paper import fig3
from paper_cases import planned


def test_figure_3_has_the_papers_and_the_exact_tolerance() -> None:
    facts = {p.dataset: p.facts for p in planned("fig3", "desk").panels}
    assert facts == {"femnist": {"paper": 11, "exact": 9}, "cifar10": {"paper": 13, "exact": 10}}


def fig3_rows(runs, cost, gain=0.0):
    """Final rows: no attack has 0.8 (the seed adds noise to all alike), others cost something."""
    return [
        {
            "dataset": panel.dataset,
            **settings,
            "last": True,
            "round": 40,
            "accuracy": 0.8
            + 0.01 * settings["seed"]
            - (settings["attack"] != "none") * (cost + 0.001 * settings["seed"])
            + (settings["plan"] == "exact") * (gain + 0.0001 * settings["seed"]),
        }
        for panel in runs.panels
        for settings, _ in panel.runs.values()
    ]


@pytest.mark.parametrize(
    ("cost", "gain", "verdicts"),
    [
        (0.01, 0.02, ["held", "held", "held"]),
        (0.2, -0.02, ["not held", "not held", "not held"]),
        (0.05, -0.0001, ["undecided", "undecided", "undecided"]),
    ],
)
def test_figure_3_verdicts(cost: float, gain: float, verdicts: list[str]) -> None:
    runs = planned("fig3", "desk", only="femnist")
    results = fig3.judge(runs, fig3_rows(runs, cost, gain))
    assert [result.verdict for result in results] == verdicts


def test_one_seed_decides_nothing() -> None:
    runs = planned("fig3", "desk", only="femnist", seeds=1)
    results = fig3.judge(runs, fig3_rows(runs, 0.3))
    assert {result.verdict for result in results} == {"undecided"}


def test_figure_3_needs_every_attack_and_pairs_of_the_same_seed() -> None:
    runs = planned("fig3", "desk", only="femnist")
    rows = fig3_rows(runs, 0.01, 0.02)
    without = [row for row in rows if row["attack"] != "foe"]
    first, _, better = fig3.judge(runs, without)
    assert first.verdict == "undecided"
    assert "fall of empires no pairs" in first.numbers
    assert better.verdict == "undecided"
    assert "no pairs" in better.numbers
    missing = {("foe", 1), ("alie", 2)}  # so only seed 0 has everything
    fewer = [row for row in rows if (row["attack"], row["seed"]) not in missing]
    assert "(one seed)" in fig3.judge(runs, fewer)[2].numbers
