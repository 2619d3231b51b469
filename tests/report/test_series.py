"""Runs that differ only in their seed form a series; its name is what differs."""

import json
from itertools import product
from pathlib import Path

import pytest

from fedro.report.page import report_sections
from fedro.report.run_data import find_runs
from fedro.report.series import ReportData, group_runs
from report_cases import (
    ATTACKS,
    BASE,
    RULES,
    copy,
    train,
)


def test_series_are_runs_that_differ_in_their_seed(data: ReportData) -> None:
    assert len(data.runs) == 12
    assert [series.name for series in data.series] == [
        f"{rule} · {attack}" for rule in RULES for attack in ATTACKS
    ]
    assert all([run.seed for run in series.runs] == [0, 1] for series in data.series)
    assert data.differing == ["rule", "attack"]
    assert data.panels == list(ATTACKS)
    assert {series.label for series in data.series} == set(RULES)
    assert {series.label: series.color for series in data.series} == dict(
        zip(RULES, (0, 1), strict=True)
    )
    assert data.notes == []


def test_one_run_is_named_by_rule_and_attack(one: Path) -> None:
    only = group_runs(*find_runs([one]))
    assert [(s.name, s.panel) for s in only.series] == [("nnm | trimmed_mean · alie", "")]
    assert only.differing == []
    assert "rule-attack" not in {part.key for part in report_sections(only)}


@pytest.mark.slow
def test_keys_that_follow_from_others_are_not_in_names(tmp_path: Path) -> None:
    short = BASE.replace(rounds=1)
    train(tmp_path / "a", short.replace(rule="fltrust", root=20))
    train(tmp_path / "b", short.replace(local_steps=2))
    train(tmp_path / "c", short)
    data = group_runs(*find_runs([tmp_path]))
    assert data.differing[0] == "rule"
    assert sorted(data.differing) == ["local_steps", "root", "rule"]
    assert [series.name for series in data.series] == [
        "fltrust · local_steps=1",
        "nnm | trimmed_mean · local_steps=1",
        "nnm | trimmed_mean · local_steps=2",
    ]


def test_a_key_of_many_values_makes_lines_and_not_panels(one: Path, tmp_path: Path) -> None:
    for number, (rule, attack) in enumerate(product(("mean", "krum"), ("alie", "foe"))):
        for rate in range(1, 15):
            path = copy(one, tmp_path / f"{number}-{rate}")
            run = json.loads((path / "run.json").read_text())
            text = run["config"].replace("nnm | trimmed_mean", rule).replace("alie", attack)
            run["config"] = text.replace("client_lr = 0.1", f"client_lr = {rate / 100}")
            (path / "run.json").write_text(json.dumps(run))
    data = group_runs(*find_runs([tmp_path]))
    assert len(data.series) == 56
    assert data.panels == ["alie", "foe"]
    assert len({series.label for series in data.series}) == 28
    assert data.series[0].label == "krum · client_lr=0.01"


@pytest.mark.slow
def test_numbers_are_in_order(tmp_path: Path) -> None:
    for steps in (10, 2, 1):
        train(tmp_path / str(steps), BASE.replace(rounds=1, local_steps=steps))
    names = [series.name for series in group_runs(*find_runs([tmp_path])).series]
    assert names == ["local_steps=1", "local_steps=2", "local_steps=10"]


def test_the_same_run_counts_once(one: Path, tmp_path: Path) -> None:
    again = copy(one, tmp_path / "again")
    data = group_runs(*find_runs([again, one, one.parent]))
    assert len(data.runs) == 1
    assert data.notes == [f"{one} is the same run as {again}, so it is left out."]
