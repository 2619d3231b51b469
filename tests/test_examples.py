"""The example scripts run, are short, and show what they are there to show."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flower_environment import QUIET

STRICT = ("-W", "error")
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def printed_by(name: str, folder: Path, *options: str) -> str:
    [script] = [path for path in EXAMPLES if path.stem == name]
    done = subprocess.run(
        [sys.executable, *options, script],
        cwd=folder,
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def number(printed: str, before: str) -> float:
    found = re.search(
        rf"^ *{re.escape(before)} +(?:none|[\d.]+)? +([\d.e+]+)", printed, re.MULTILINE
    )
    assert found, printed
    return float(found[1])


def share(printed: str, before: str) -> float:
    found = re.search(rf"^ *{before} +([\d.]+)%", printed, re.MULTILINE)
    assert found, printed
    return float(found[1])


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_short_and_say_how_they_are_run(script: Path) -> None:
    text = script.read_text()
    assert text.count("\n") < 60
    assert f"python examples/{script.name}" in text.split('"""')[1]
    assert f"def test_{script.stem}(" in Path(__file__).read_text()


@pytest.mark.slow
def test_aggregate_only(tmp_path: Path) -> None:
    printed = printed_by("aggregate_only", tmp_path, *STRICT)
    best = number(printed, "(the honest mean)")
    assert number(printed, "mean") > 1e6 * best
    for rule in ("median", "trimmed_mean", "nnm | trimmed_mean", "geometric_median"):
        assert number(printed, rule) < 2 * best


@pytest.mark.slow
def test_own_rule(tmp_path: Path) -> None:
    printed = printed_by("own_rule", tmp_path, *STRICT)
    assert re.search(r"trimmed_mean +0\.29 +proved: 0\.29", printed)
    assert share(printed, "medoid") < 30 < share(printed, r"nnm \| medoid")


@pytest.mark.slow
@pytest.mark.soak
def test_own_model(tmp_path: Path) -> None:
    printed = printed_by("own_model", tmp_path, *STRICT)
    assert share(printed, "mean") < 50
    assert share(printed, r"nnm \| trimmed_mean") > 80
    assert (tmp_path / "own_model.safetensors").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.soak
def test_hospital(tmp_path: Path) -> None:
    printed = printed_by("hospital", tmp_path, *STRICT)
    assert "sample 8, tolerate 1: safe with 100%" in printed
    assert share(printed, r"foe\(tau=20\.0\) +mean") < 50
    assert share(printed, r"foe\(tau=20\.0\) +trimmed_mean") > 90


@pytest.mark.slow
@pytest.mark.soak
def test_sklearn_clients(tmp_path: Path) -> None:
    printed = printed_by("sklearn_clients", tmp_path)  # Flower's own imports warn
    assert share(printed, "FedAvg") < 50
    assert share(printed, "FedRo") > 85
