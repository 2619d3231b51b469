"""Figure 2: the paper's settings, fair verdicts, the right numbers in the picture."""

from pathlib import Path

import pytest
from scipy import stats

from fedro.paper import fig2
from paper_cases import planned, run_here


def test_figure_2_has_the_settings_of_the_papers_table() -> None:
    runs = planned("fig2", "paper").experiments.values()
    assert {e.sampled for e in runs} == {1, 6, 11, 16, 21, 26, 31, 36, 41, 46, 51, 56}
    for e in runs:
        assert (e.clients, e.byzantine, e.rounds, e.server_lr, e.l2) == (150, 30, 500, 1.0, 1e-4)
        assert e.tolerated == max(0, e.sampled // 2 - 1)
        assert [e.lr(t) for t in (0, 299, 300, 400, 460)] == [0.1, 0.1, 0.02, 0.004, 0.0008]
        assert "takeover" in e.attack
        assert e.model == "femnist_cnn"
    assert all(e.rounds == 500 for e in planned("fig2", "desk").experiments.values())


def test_figure_2_can_follow_the_text() -> None:
    for e in planned("fig2", "paper", "text").experiments.values():
        assert e.tolerated == (e.sampled - 1) // 2  # ⌊n̂/2⌋ where that is below half


def fig2_rows(runs, broken):
    """Rows as of finished runs, of which `broken(n̂, seed)` were taken over and failed."""
    (panel,) = runs.panels
    return [
        {
            "dataset": panel.dataset,
            **settings,
            "accuracy": 0.05 if broken(settings["sampled"], settings["seed"]) else 0.8,
            "safe_probability": fig2.no_overrun_probability(
                panel, settings["sampled"], settings["tolerated"]
            ),
            "failed": broken(settings["sampled"], settings["seed"]),
            "takeovers": int(broken(settings["sampled"], settings["seed"])),
            "run": name,
        }
        for name, (settings, _) in panel.runs.items()
    ]


def test_figure_2_probabilities_are_the_hypergeometric_tails() -> None:
    (panel,) = planned("fig2", "desk").panels
    for n, p in ((16, 0.116), (21, 0.391), (26, 0.937), (31, 0.978), (36, 0.9991)):
        exact = stats.hypergeom.cdf(n // 2 - 1, 150, 30, n) ** 500
        assert fig2.no_overrun_probability(panel, n, n // 2 - 1) == pytest.approx(exact, rel=1e-9)
        assert exact == pytest.approx(p, abs=0.001)


@pytest.mark.parametrize(
    ("broken", "verdicts"),
    [
        (lambda n, _: n < 30, ["held", "held", "held", "not held"]),  # 26 fails too often
        (lambda n, s: n < 20 or (n == 21 and s < 3), ["held", "not held", "held", "held"]),
        (lambda n, _: False, ["undecided", "not held", "undecided", "not held"]),
        (lambda n, _: n in (1, 41), ["not held", "not held", "held", "not held"]),
    ],
)
def test_figure_2_verdicts(broken, verdicts: list[str]) -> None:
    runs = planned("fig2", "desk")
    results = fig2.judge(runs, fig2_rows(runs, broken))
    assert [result.verdict for result in results] == verdicts


def test_figure_2_with_one_seed_decides_only_by_counterexample() -> None:
    runs = planned("fig2", "desk", seeds=1)
    results = fig2.judge(runs, fig2_rows(runs, lambda n, _: n < 30))
    assert [result.verdict for result in results] == ["undecided", "undecided", "held", "undecided"]


def test_figure_2_a_failure_without_a_takeover_counts_against_it() -> None:
    runs = planned("fig2", "desk")
    rows = fig2_rows(runs, lambda n, _: n < 20)
    rows[-1]["failed"] = True
    odd = fig2.judge(runs, rows)[2]
    assert odd.verdict == "not held"
    assert rows[-1]["run"] in odd.numbers


def test_figure_2_without_a_run_to_compare_with_says_nothing_of_that_seed(tmp_path: Path) -> None:
    runs = planned("fig2", "smoke")
    small = {name: e.replace(rounds=1) for name, e in runs.experiments.items()}
    wanted = ["digits,sampled=1,seed=0", "digits,sampled=21,seed=0", "digits,sampled=1,seed=1"]
    run_here({name: small[name] for name in wanted}, tmp_path)
    failed = {row["run"]: row["failed"] for row in fig2.tabulate(runs, tmp_path)}
    assert failed["digits,sampled=1,seed=1"] is None
    assert failed["digits,sampled=21,seed=0"] is False
    assert len(fig2.judge(runs, fig2.tabulate(runs, tmp_path))) == 3


def test_figure_2_shows_its_rows() -> None:
    runs = planned("fig2", "desk")
    rows = fig2_rows(runs, lambda n, seed: n < 30 and seed < 4)
    upper, lower = fig2.draw(runs, rows).axes
    means = dict(zip(*upper.lines[0].get_data(), strict=True))
    assert means[26] == pytest.approx(100 * (4 * 0.05 + 0.8) / 5)
    assert means[31] == pytest.approx(80)
    failed = dict(zip(*lower.lines[2].get_data(), strict=True))
    assert (failed[26], failed[31]) == (80, 0)
    expected = dict(zip(*lower.lines[1].get_data(), strict=True))
    assert expected[21] == pytest.approx(100 * (1 - 0.391), abs=0.1)
