"""``fedro plan``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from run_cases import invoke

PAPER = ["plan", "--clients", "150", "--byzantine", "15", "--rounds", "500"]


def test_the_answer_its_alternatives_and_its_reasons_are_printed() -> None:
    done = invoke(*PAPER)
    assert done.exit_code == 0
    text = " ".join(done.output.split())
    assert "Sample 27 of 150 clients each round, and tolerate 9 Byzantine ones." in text
    assert "If there are 23 Byzantine clients instead of 15" in text
    for word in ("smallest safe", "all clients", "300", "proved κ", "best κ", "nnm | trimmed_mean"):
        assert word in text


def printed(*arguments: str) -> str:
    done = invoke("plan", *arguments)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.replace("│", " ").split())


def test_an_ordinary_day_is_shown_beside_the_worst_case() -> None:
    text = printed(*PAPER[1:])
    assert "κ = 4 is proved for nnm | trimmed_mean in a round with 9 Byzantine clients" in text
    assert "With 3 of them the proved κ is 1.956; with 5, which 95% of the draws" in text
    often = printed("--clients", "25", "--byzantine", "1", "--rounds", "9", "--sampled", "24")
    assert "A draw has 0.96 Byzantine clients on average. With 1, which 95%" in often


@pytest.mark.parametrize(("clients", "byzantine"), [(5, 1), (12, 2)])
def test_few_clients_are_all_sampled(clients: int, byzantine: int) -> None:
    text = printed("--clients", str(clients), "--byzantine", str(byzantine), "--rounds", "500")
    assert f"Sample {clients} of {clients} clients (everyone) each round" in text
    assert "free of overruns with probability 100%" in text
    assert "no round can be an overrun" in text
    assert f"With {clients} clients it is best to sample everyone: a smaller sample would" in text


def test_with_dropouts_the_probability_is_that_of_void_draws_too() -> None:
    few = ["--clients", "20", "--byzantine", "2", "--rounds", "1000", "--dropout", "30%"]
    text = printed(*few)
    safe = "free of overruns and of void draws"
    assert f"All 1000 rounds are {safe} with probability 99.45% (wanted: 99%)" in text
    assert f"Safe run: the probability that it is {safe}." in text
    assert f"the run is {safe} with probability 0% (on average 1000 of 1000 draws" in text
    assert "no round can be an overrun" in text  # everyone is sampled
    assert "free of overruns and of more than 3 void draws" in printed(*few, "--retries", "3")


def test_without_byzantine_clients_a_single_one_is_too_many() -> None:
    text = printed("--clients", "150", "--byzantine", "0", "--rounds", "500")
    assert "Sample 10 of 150 clients each round" in text
    assert "10 clients is what experiments use too" in text
    assert "If there is 1 Byzantine client instead of 0" in text


def test_it_says_how_many_retries_would_do() -> None:
    few = ["plan", "--clients", "5", "--byzantine", "1", "--rounds", "50", "--dropout"]
    done = invoke(*few, "20%")
    assert done.exit_code == 2
    assert "allow 8 retries (retries=8), or expect fewer dropouts" in done.stderr
    assert invoke(*few, "20%", "--retries", "7").exit_code == 2
    assert invoke(*few, "20%", "--retries", "8").exit_code == 0
    hopeless = invoke(*few, "90%")
    assert "expect fewer dropouts, since no number of retries would do" in hopeless.stderr


def test_json_has_the_promised_keys() -> None:
    done = invoke(*PAPER, "--json", "--sampled", "26", "--bound", "shifted")
    plan = json.loads(done.stdout)
    assert {key: plan[key] for key in ("sampled", "tolerated", "n_th", "n_opt", "bound")} == {
        "sampled": 26,
        "tolerated": 11,
        "n_th": 26,
        "n_opt": 150,
        "bound": "shifted",
    }
    assert {"confidence_achieved", "n_min", "n_all", "kappa"} <= set(plan)


def test_shares_are_accepted() -> None:
    done = invoke("plan", "--clients", "155", "--byzantine", "10%", "--rounds", "9", "--json")
    assert json.loads(done.stdout)["byzantine"] == 16  # rounded up
    dropout = invoke(*PAPER, "--dropout", "5%", "--confidence", "99%", "--json")
    assert json.loads(dropout.stdout)["dropout"] == 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--byzantine", "80"], "half or more are Byzantine"),
        (["--byzantine", "ten"], "write a whole number"),
        (["--byzantine", "x%"], "a share of the clients from 0% to 100%"),
        (["--byzantine", "nan"], "write a whole number"),
        (["--clients", "-5"], "clients=-5"),
        (["--clients", "nan"], "--clients"),
        (["--confidence", "1.5"], "confidence=1.5"),
        (["--confidence", "nan"], "confidence='nan'"),
        (["--confidence", "1e400"], "confidence='1e400'"),
        (["--dropout", "1e99999999"], "dropout='1e99999999'"),
        (["--byzantine", "1e1000000%"], "byzantine='1e1000000%'"),
        (["--clients", "1" + 36 * "0"], "clients="),
        (["--max-kappa", "inf"], "max_kappa=inf"),
        (["--dropout", "-1"], "dropout=-1"),
        (["--bound", "wrong"], "Known: exact, shifted, literal"),
        (["--sampled", "4"], "The least that works is 15"),
        (["--rule", "no_such"], "unknown rule"),
        (["--max-kappa", "nan"], "max_kappa=nan"),
        (["--plot", "/proc/nowhere/plan.png"], "/proc/nowhere"),
        (["--plot", "plan.xyz"], "must end in one of"),
        (["--html", "/proc/nowhere/plan.html"], "/proc/nowhere"),
        (["--html", "plan.png"], "must end in .html"),
        (["--html", "plan.html", "--sampled", "40"], "no field for sampled"),
        (["--html", "plan.html", "--rule", "median"], "the page knows the κ of nnm"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_wrong_input_is_explained_and_writes_nothing(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke(*PAPER, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_figure_and_a_page_are_written(tmp_path: Path) -> None:
    picture = tmp_path / "new" / "plan.png"
    assert f"Figure written to {picture}" in invoke(*PAPER, "--plot", picture).stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in picture.parent.iterdir()] == ["plan.png"]
    page = tmp_path / "pages" / "plan.html"
    assert f"Page written to {page}" in invoke(*PAPER, "--html", page).stdout
    assert page.read_text().startswith("<!doctype html>")


OWN_RULE = """
from fedro.rules import register

@register(cost="nd", source="a test", kappa=lambda n, b: 3.0 * b / (n - 2 * b))
def trimmed(rows):
    "A trimmed mean."
    return rows.band(rows.b, rows.n - rows.b)

@register(cost="nd", source="a test")
def unproved(rows):
    "Nobody knows."
    return rows.band(0, rows.n)
"""


@pytest.mark.slow
def test_a_plan_for_a_rule_of_your_own(tmp_path: Path) -> None:
    (tmp_path / "my_rules.py").write_text(OWN_RULE)
    words = ["plan", "--clients=50", "--byzantine=5", "--rounds=9", "--json"]
    proved, unproved = (
        subprocess.run(
            [sys.executable, "-m", "fedro", *words, f"--rule=my_rules:{name}"],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
        )
        for name in ("trimmed", "unproved")
    )
    plan = json.loads(proved.stdout)
    n, b = plan["sampled"], plan["tolerated"]
    assert plan["kappa"] == pytest.approx(3 * b / (n - 2 * b))
    assert plan["rule"] == "my_rules:trimmed"
    plan = json.loads(unproved.stdout)
    assert plan["kappa"] is None
    assert "No κ is proved for my_rules:unproved" in " ".join(plan["why"])


UNKNOWN = ["plan", "--clients", "150", "--rounds", "500"]


def test_without_a_number_of_byzantine_clients_several_are_compared(tmp_path: Path) -> None:
    done = invoke(*UNKNOWN)
    assert done.exit_code == 0
    lines = done.output.splitlines()
    row = next(line for line in lines if line.startswith("│ 15 (10%)"))
    assert row.split("│")[2:6] == ["     27 ", "        9 ", "        4 ", "      1 "]
    assert "23: 43%, needs b̂ = 12" in row
    assert max(map(len, lines)) <= 80
    compared = json.loads(invoke(*UNKNOWN, "--json").stdout)["scenarios"]
    assert [scenario["byzantine"] for scenario in compared] == [0, 2, 8, 15, 30, 45]
    assert compared[3]["plan"]["sampled"] == 27
    assert compared[3]["if_half_more"]["tolerated"] == 12
    picture, page = tmp_path / "plan.png", tmp_path / "plan.html"
    assert invoke(*UNKNOWN, "--plot", picture, "--html", page).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert '"byzantine": 15' in page.read_text()


def test_a_hopeless_share_is_listed_with_its_reason() -> None:
    done = invoke(*UNKNOWN, "--max-kappa", "1")
    assert done.exit_code == 0
    text = " ".join(done.output.split())
    assert (
        "• 45 Byzantine: no sample size reaches κ ≤ 1: sampling all 150 clients has κ = 3" in text
    )
