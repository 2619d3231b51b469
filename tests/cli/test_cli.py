"""The command line as a user meets it: in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from fedro.cli import app

PAPER = ["plan", "--clients", "150", "--byzantine", "15", "--rounds", "500"]


def fedro(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedro", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload,no-any-return]


def test_help_goes_along_the_road_and_explains_every_argument() -> None:
    group = typer.main.get_command(app)
    road = ["plan", "run", "rollback", "data", "sweep", "report", "rules", "attacks", "kappa"]
    road.append("reproduce")
    assert list(group.commands) == road  # type: ignore[attr-defined]
    for command in group.commands.values():  # type: ignore[attr-defined]
        for parameter in command.params:
            assert parameter.help, f"{command.name}: {parameter.name}"


def test_plan_reads_well() -> None:
    done = fedro(*PAPER)
    assert done.returncode == 0
    assert "Sample 27 of 150 clients each round, and tolerate 9 bad ones" in done.stdout
    for word in ("least that works", "everyone", "300", "With 23 bad clients instead of 15"):
        assert word in done.stdout


def test_json_has_the_promised_keys() -> None:
    done = fedro(*PAPER, "--json", "--sampled", "26", "--bound", "shifted")
    plan = json.loads(done.stdout)
    assert {key: plan[key] for key in ("sampled", "tolerated", "n_th", "n_opt", "bound")} == {
        "sampled": 26,
        "tolerated": 11,
        "n_th": 26,
        "n_opt": 150,
        "bound": "shifted",
    }
    assert {"confidence_achieved", "n_min", "n_all", "kappa"} <= set(plan)


def test_shares() -> None:
    by_share = fedro("plan", "--clients", "155", "--byzantine", "10%", "--rounds", "9", "--json")
    assert json.loads(by_share.stdout)["byzantine"] == 16  # rounded up
    dropout = fedro(*PAPER, "--dropout", "5%", "--confidence", "99%", "--json")
    assert json.loads(dropout.stdout)["dropout"] == 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--byzantine", "80"], "half or more are bad"),
        (["--byzantine", "ten"], "write a whole number"),
        (["--byzantine", "x%"], "a share like 5%"),
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
        (["--no-such-option"], "No such option"),
    ],
)
def test_bad_input_exits_with_2_and_no_traceback(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = fedro(*PAPER, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_plot_and_figure(tmp_path: Path) -> None:
    picture = tmp_path / "new" / "plan.png"
    assert fedro(*PAPER, "--plot", str(picture)).returncode == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in picture.parent.iterdir()] == ["plan.png"]
    page = tmp_path / "pages" / "plan.html"
    assert f"Written to {page}" in fedro(*PAPER, "--html", str(page)).stdout
    assert page.read_text().startswith("<!doctype html>")
    assert fedro("reproduce", "fig9").returncode == 2


@pytest.mark.parametrize("arguments", [["--help"], PAPER], ids=["help", "plan"])
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    code = (
        "import sys; from fedro.cli import app\n"
        f"try: app({arguments!r})\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'matplotlib', 'scipy', 'numba'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


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
        fedro(*words, f"--rule=my_rules:{name}", cwd=tmp_path) for name in ("trimmed", "unproved")
    )
    plan = json.loads(proved.stdout)
    n, b = plan["sampled"], plan["tolerated"]
    assert plan["kappa"] == pytest.approx(3 * b / (n - 2 * b))
    assert plan["rule"] == "trimmed"
    assert unproved.returncode == 2
    assert "has no proved κ: plan with another rule's" in " ".join(unproved.stderr.split())


def test_rules_are_listed() -> None:
    assert "nnm |" in fedro("rules").stdout
    assert fedro("rules", "--markdown").stdout.startswith("| name | what it does |")


@pytest.mark.slow
def test_kappa() -> None:
    asked = ["kappa", "trimmed_mean", "--sampled", "5", "--tolerated", "2", "--seconds", "0.5"]
    text = fedro(*asked).stdout
    assert "proved κ        2 " in text
    assert "least possible  2 " in text
    found = json.loads(fedro(*asked, "--json").stdout)
    assert found["proved"] == found["lower_bound"] == 2
    assert 1.9 < found["found"] <= 2.001
    assert fedro("kappa", "mean", *asked[2:]).stdout.count("none known") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such", "--sampled", "5", "--tolerated", "1"], "unknown rule"),
        (["median", "--sampled", "4", "--tolerated", "2"], "needs 2b < n"),
        (["nnm", "--sampled", "5", "--tolerated", "1"], "ends in a mixer"),
        (["median", "--sampled", "5", "--tolerated", "1", "--seconds", "-1"], "seconds"),
    ],
)
def test_kappa_explains_bad_input(arguments: list[str], message: str) -> None:
    done = fedro("kappa", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_version() -> None:
    assert fedro("--version").stdout.strip() == "0.1.0"
