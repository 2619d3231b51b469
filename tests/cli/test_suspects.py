"""`fedro suspects` as a user runs it, on run folders of simulations and deployments."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

import fedro
from fedro.cli import app
from fedro.runs import RunFolder
from suspect_cases import against, rounds_of

BAD = (3, 7, 11)
NODES = {number: str(2**63 + 7 * number) for number in range(20)}


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def suspects(path: Path, *options: str):
    return CliRunner().invoke(app, ["suspects", str(path), *options])


def as_json(path: Path, *options: str) -> dict[str, Any]:
    result = suspects(path, "--json", *options)
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


def folder_with(path: Path, lines: list[dict[str, Any]], **config: Any) -> Path:
    values = {"rounds": 200, "dataset": "digits", "clients": 20, "byzantine": 3, **config}
    with RunFolder.create(path, values, {"sampled": 12, "tolerated": 3}) as folder:
        for line in lines:
            folder.append(line)
    return path


def test_a_simulation_with_an_attack(tmp_path: Path) -> None:
    lines = rounds_of(40, cosine=against(*BAD), byzantine=BAD)
    result = suspects(folder_with(tmp_path / "run", lines))
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "3 suspects after 40 rounds with evidence and 5 looks" in text
    assert "rate of false discoveries of 5%" in text
    assert "With 95% confidence, at least 3 clients must be Byzantine" in text
    assert "planned for 3, so its guarantee holds" in text
    assert "Known only in a simulation: 3 of the 3 Byzantine clients" in text
    assert "recall 100%" in text
    assert "12 more clients are not suspect" in text
    assert max(map(cell_len, result.stdout.splitlines())) <= 80
    rows = [line.split() for line in result.stdout.splitlines() if "direction " in line]
    assert sorted(int(row[0]) for row in rows) == list(BAD)
    assert "more clients" not in suspects(tmp_path / "run", "--all").stdout


def test_a_run_without_an_attack(tmp_path: Path) -> None:
    path = folder_with(tmp_path / "run", rounds_of(40), byzantine=0)
    assert "Nobody is suspect after 40 rounds" in suspects(path).stdout
    values = as_json(path)
    assert (values["suspects"], values["at_least"], values["enough"]) == ([], 0, True)
    assert values["recall"] is None


def test_too_little_evidence_is_not_nobody(tmp_path: Path) -> None:
    short = folder_with(tmp_path / "short", rounds_of(5, cosine=against(*BAD)))
    assert "Too little evidence" in suspects(short).stdout
    assert "Nobody" not in suspects(short).stdout
    assert as_json(short)["enough"] is False
    void = folder_with(tmp_path / "void", rounds_of(5, void=range(5)))
    assert "all 5 rounds were void" in " ".join(suspects(void).stdout.split())
    empty = folder_with(tmp_path / "empty", [])
    assert "no round is complete" in suspects(empty).stdout


def test_more_than_planned(tmp_path: Path) -> None:
    lines = rounds_of(60, cosine=against(1, 2, 3, 4), byzantine=(1, 2, 3, 4))
    path = folder_with(tmp_path / "run", lines, byzantine=1, rounds=100)
    values = as_json(path)
    assert (values["planned"], values["at_least"]) == (1, 4)
    plan = fedro.plan(clients=20, byzantine=3, rounds=100, sampled=12)
    assert plan.tolerated == 3
    outlook = plan.if_more(4)
    assert values["outlook"] == pytest.approx(vars(outlook))
    text = " ".join(suspects(path).stdout.split())
    assert "at least 4 clients must be Byzantine, more than the 1 that the run" in text
    assert f"tolerate {outlook.tolerated} to be safe" in text


def test_a_deployment_names_nodes(tmp_path: Path) -> None:
    lines = rounds_of(40, cosine=against(*BAD), copying=(3, 5, 7), byzantine=None)
    path = folder_with(tmp_path / "run", lines, dataset="flower")
    ledger = {node: {"number": number, "since": 0} for number, node in NODES.items()}
    (path / "ledger.json").write_text(json.dumps(ledger))
    result = suspects(path)
    assert all(NODES[client] in result.stdout for client in BAD)
    assert "simulation" not in result.stdout
    assert "direction, copies" in result.stdout
    assert "3, 5, 7. At most one" in " ".join(result.stdout.split())
    assert max(map(cell_len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout
    values = as_json(path)
    assert {client["node"] for client in values["clients"]} == set(NODES.values())
    assert values["byzantine"] is None


def test_the_rate_can_be_changed_after_the_run(tmp_path: Path) -> None:
    path = folder_with(tmp_path / "run", rounds_of(40, cosine=against(*BAD)), fdr=0.01)
    assert as_json(path)["fdr"] == 0.01
    assert as_json(path, "--fdr", "20%") == as_json(path, "--fdr", "0.2")
    assert as_json(path, "--fdr", "20%")["fdr"] == 0.2


def test_errors(tmp_path: Path) -> None:
    path = folder_with(tmp_path / "run", rounds_of(12))
    for wrong in ("0", "100%", "five"):
        result = suspects(path, "--fdr", wrong)
        assert result.exit_code == 2
        assert "fdr=" in result.stderr
    missing = suspects(tmp_path / "nowhere")
    assert missing.exit_code == 2
    assert "holds no run" in missing.stderr
    older = [{k: v for k, v in line.items() if k != "evidence"} for line in rounds_of(12)]
    result = suspects(folder_with(tmp_path / "older", older))
    assert result.exit_code == 2
    assert "older version of fedro" in result.stderr


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.pop("cosine"),
        lambda facts: facts["cosine"].pop(),
        lambda facts: facts["cosine"].__setitem__(0, None),
        lambda facts: facts["clients"].__setitem__(0, 10**12),
        lambda facts: facts["clients"].__setitem__(0, -1),
        lambda facts: facts["clients"].__setitem__(0, facts["clients"][1]),
        lambda facts: facts.__setitem__("copies", [[1, 10**9]]),
        lambda facts: facts.__setitem__("copies", 3),
    ],
)
def test_damaged_evidence(tmp_path: Path, change) -> None:
    damaged = rounds_of(12)
    change(damaged[4]["evidence"])
    result = suspects(folder_with(tmp_path / "damaged", damaged))
    assert result.exit_code == 2
    assert "round 4 of rounds.jsonl has no valid evidence" in result.stderr


def test_a_recorded_run_from_end_to_end(tmp_path: Path) -> None:
    experiment = fedro.Experiment(
        clients=15, byzantine=3, attack="sign_flip", rounds=15, local_steps=2, engine="inline"
    )
    last = list(fedro.run_into(tmp_path / "run", experiment))[-1]
    values = as_json(tmp_path / "run")
    assert values["suspects"] == last.suspects == fedro.suspects(tmp_path / "run").suspects
    assert values["rounds"] == 15
    assert values["planned"] == 3
