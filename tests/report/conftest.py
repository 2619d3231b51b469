"""Run folders and reports that the tests of several files share."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fedro.common.figures import STYLE
from fedro.report import write_report
from fedro.report.run_data import find_runs
from fedro.report.series import ReportData, group_runs
from report_cases import ATTACKS, BASE, HOSTILE, RULES, SEEDS, copy, edit, hostile, train


@pytest.fixture(autouse=True)
def _coarse_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """PNG files with few pixels are written several times as fast."""
    monkeypatch.setitem(STYLE, "figure.dpi", 40)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rules, three attacks, two seeds; in folders of folders."""
    folder = tmp_path_factory.mktemp("runs")
    for number, (rule, attack, seed) in enumerate(product(RULES, ATTACKS, SEEDS)):
        experiment = BASE.replace(rule=rule, attack=attack, seed=seed)
        train(folder / f"seed-{seed}" / f"run-{number}", experiment)
    return folder


@pytest.fixture(scope="session")
def data(runs: Path) -> ReportData:
    return group_runs(*find_runs([runs]))


@pytest.fixture(scope="session")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which the attack tells in each round what it chose, as `worst` does."""

    def choose(line: dict[str, Any]) -> None:
        line["attack"] = ("foe", "alie", None)[line["round"] % 3]

    return edit(train(tmp_path_factory.mktemp("one") / "run", BASE.replace(attack="alie")), choose)


@pytest.fixture
def spoilt(one: Path, tmp_path: Path) -> Path:
    """Two runs, so that their names are what differs."""
    copy(one, tmp_path / "runs" / "<b>plain</b>")
    return hostile(copy(one, tmp_path / "runs" / HOSTILE.replace("/", ""))).parent


@pytest.fixture(scope="session")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([runs], tmp_path_factory.mktemp("report") / "report.html").files[0]


@pytest.fixture(scope="session")
def small_report(one: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on one run, which a browser draws in a fraction of the time."""
    return write_report([one], tmp_path_factory.mktemp("report") / "small.html").files[0]
