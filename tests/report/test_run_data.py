"""Reading run folders: complete, unfinished and damaged ones."""

import html
import json
import re
from pathlib import Path

import pytest

from fedro.report.page import render_page, report_sections
from fedro.report.run_data import find_runs, load_run
from fedro.report.series import group_runs
from fedro.runs import RunFolderError
from report_cases import BASE, charts, copy, edit, train


def test_keys_that_older_runs_lack_have_their_defaults(one: Path, tmp_path: Path) -> None:
    old = copy(one, tmp_path / "old")
    run = json.loads((old / "run.json").read_text())
    assert 'output = "last"\n' in run["config"]
    run["config"] = run["config"].replace('output = "last"\n', "").replace("seed = 0", "seed = 1")
    (old / "run.json").write_text(json.dumps(run))
    data = group_runs(*find_runs([one, tmp_path]))
    assert data.differing == []
    assert [run.seed for run in data.series[0].runs] == [0, 1]


def test_an_unfinished_run_is_shown_as_far_as_it_went(tmp_path: Path) -> None:
    path = train(tmp_path / "run", BASE, rounds=3)
    data = group_runs(*find_runs([path]))
    assert data.notes == [f"{path} is unfinished: 3 of 4 rounds are shown."]
    assert charts(data)["accuracy"].panels[0].traces[0].x == [1]  # type: ignore[union-attr]
    text = render_page(data, report_sections(data))
    assert "(unfinished)" in text
    assert "3 of 4" in text
    assert "seed 0, unfinished" in text


def test_folders_that_hold_no_run(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=f"^no runs found. {tmp_path} contains no run folder"):
        find_runs([tmp_path])
    with pytest.raises(RunFolderError, match=r"nowhere is not a folder"):
        find_runs([runs, tmp_path / "nowhere"])
    assert find_runs([runs, tmp_path])[1] == [f"{tmp_path} contains no run folder."]


DAMAGE = {
    "run.json": (b"{", r"run.json is damaged"),
    "rounds.jsonl": (b"[]\n", r"line 1 of .*rounds.jsonl is damaged: no JSON object"),
    "summary.json": (b"{}", r"is damaged: 'final' is missing"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_runs_are_told_and_the_others_go_on(
    name: str, one: Path, runs: Path, tmp_path: Path
) -> None:
    bad = copy(one, tmp_path / "bad")
    data, message = DAMAGE[name]
    (bad / name).write_bytes(data)
    with pytest.raises(RunFolderError, match=f"(?s)no runs found.*{bad}.*|{message}"):
        find_runs([bad])
    found, troubles = find_runs([runs, tmp_path])
    assert len(found) == 12
    assert len(troubles) == 1
    assert re.search(message, troubles[0])
    assert str(bad) in troubles[0]
    whole = group_runs(found, troubles)
    assert html.escape(troubles[0]) in render_page(whole, report_sections(whole))


def test_a_folder_without_its_run_json_is_damaged(one: Path, tmp_path: Path) -> None:
    bad = copy(one, tmp_path / "bad")
    (bad / "run.json").unlink()
    with pytest.raises(RunFolderError, match=r"bad holds no run: it has no run.json"):
        find_runs([tmp_path])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("round", "x", "line 1 of rounds.jsonl: invalid literal"),
        ("sampled", None, "line 1 of rounds.jsonl: 'NoneType'"),
        ("missing", {"a": "b"}, "line 1 of rounds.jsonl: invalid literal"),
        ("train_loss", "1", "line 1 of rounds.jsonl: '1' is not a number"),
        ("seconds", [], "line 1 of rounds.jsonl: 'list'"),
        ("score", 3, "line 1 of rounds.jsonl: 'int'"),
    ],
)
def test_values_that_cannot_be_are_damage(
    key: str, value: object, message: str, one: Path, tmp_path: Path
) -> None:
    path = edit(copy(one, tmp_path / "run"), lambda line: line.update({key: value}))
    with pytest.raises(RunFolderError, match=message):
        load_run(path)
    with pytest.raises(RunFolderError, match=r"line 1 of rounds\.jsonl has no 'round'"):
        load_run(edit(copy(one, tmp_path / "other"), lambda line: line.pop("round")))
