"""Frames of `fedro watch`: what they show, that they fit, and that nodes cannot write into them."""

import dataclasses
import io
import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from fedro.runs.progress import RunFollower, RunStatus
from fedro.runs.terminal import LEVELS, one_line, run_frame, sparkline, sweep_frame
from watched_runs import begin, deployed_line, line, score

HOSTILE = "\x1b[2J\x1b]0;title\x07\r\n\t\u202e[bold red]" + "界" * 200


def printed(frame: object, width: int = 80) -> str:
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(frame)
    return file.getvalue()


def shown(path: Path, width: int = 80, **changes: object) -> str:
    status = dataclasses.replace(RunFollower(path).status(), **changes)
    return printed(run_frame(status, width), width)


def test_a_running_simulation(path: Path) -> None:
    with begin(path) as folder:
        for round in range(5):
            lost = {"7": "holds NaN or Inf"} if round == 2 else {}
            folder.append(line(round, rejected=lost, score=score(0.5 + round / 10)))
        text = shown(path, process="123", age=4.0)
    assert "running (process 123)  last write 4.0 s ago" in text
    assert "5 of 20  █████░" in text
    assert "2.0 s a round, about 30 s left" in text
    assert re.search(f"accuracy +90.0% +{sparkline([0.5, 0.6, 0.7, 0.8, 0.9], 22)} ", text)
    assert "worst tenth  50.0%" in text
    assert "4 now, 3 lowest (round 2), 4 without lost replies" in text
    assert "0 missing and 1 rejected of 50 replies" in text
    assert "client 7  1 rejected  holds NaN or Inf" in text
    assert "0.5 now, 0.5 largest, proved 2; no round above b̂ = 3" in text
    assert "void" not in text
    assert "suspects" not in text


def test_a_deployment_in_trouble(path: Path) -> None:
    with begin(path, dataset="flower") as folder:
        for round in range(4):
            missing = {str(node): "did not answer" for node in range(round)}
            folder.append(deployed_line(round, missing=missing, suspects=[3, 8]))
        folder.append(deployed_line(4, sampled=[], tolerated=None, void="12 nodes are online"))
        ledger = {"18446744073709551615": {"number": 0, "quarantined": 2}}
        (path / "ledger.json").write_text(json.dumps(ledger))
        text, wide = shown(path, age=200.0), shown(path, 120)
    assert "no new round for 3 min" in text
    assert "eval_acc  0.8  0.7 – 0.9" in text
    assert "1 now, 1 lowest (round 3), 4 without lost replies" in text
    assert "40 online, n̂ = 10, b̂ = 3" in text
    assert "1 round, 1 in a row now; the last, 4: 12 nodes are online" in text
    assert "6 missing and 0 rejected of 40 replies" in text
    assert "node 0 quarantined  3 missing  did not answer" in text
    assert "suspects  3, 8" in text
    assert "κ" not in text
    assert "node 0 (18446744073709551615) quarantined" in wide


def test_a_raised_tolerance_and_overruns(path: Path) -> None:
    with begin(path) as folder:
        folder.append(line(0, byzantine=[1, 2, 3, 4], tolerated=4))
        assert "b̂ = 4 instead of 3" in shown(path)
        assert "1 round above b̂ = 3" in shown(path)


def test_a_run_that_has_stopped_or_failed(path: Path) -> None:
    with begin(path) as folder:
        folder.append(line(0))
    assert "stopped (no process writes it)" in shown(path)
    assert "left" not in shown(path)
    failed = shown(path, state="failed", problem="All rounds were void. Sample more clients.")
    assert "problem   All rounds were void. Sample more clients." in failed
    assert "in 2.0 s" in failed


def hostile_status(path: Path) -> RunStatus:
    lost = {str(10**40 + client): HOSTILE for client in range(10)}
    mean = {"value": 1e300, "low": -1e300, "high": 1e300, "replies": 10}
    metrics = {"evaluate": {f"{HOSTILE}{number}": mean for number in range(30)}}
    with begin(path, dataset="flower") as folder:
        for round in range(30):
            more = {"missing": lost, "rejected": lost, "metrics": metrics, "void": HOSTILE}
            folder.append(deployed_line(round, **more, suspects=[HOSTILE], byzantine=[]))
        record = {"number": 10**40, "quarantined": 1}
        (path / "ledger.json").write_text(json.dumps({HOSTILE: record}))
        status = RunFollower(path).status()
    return dataclasses.replace(status, path=path / HOSTILE, process=HOSTILE, problem=HOSTILE)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_nodes_cannot_write_into_the_terminal(path: Path, width: int) -> None:
    status = hostile_status(path)
    frames = [run_frame(status, width), sweep_frame([status] * 50, status.path, width)]
    for text in map(printed, frames, [width, width]):
        assert all(char.isprintable() for char in text.replace("\n", ""))
        assert all(cell_len(row) <= width for row in text.splitlines())
        assert len(text.splitlines()) < 60
    assert one_line(status).isprintable()


def test_the_table_of_a_sweep(tmp_path: Path) -> None:
    statuses = []
    for number in range(45):
        with begin(tmp_path / f"{number:02}") as folder:
            folder.append(line(0, score=score(number / 100), missing={"1": "silent"}))
            if number < 40:
                folder.finish({}, {"problem": None})
        statuses.append(RunFollower(tmp_path / f"{number:02}").status())
    text = printed(sweep_frame(statuses, tmp_path, 80))
    assert "40 finished, 5 stopped" in text
    rows = [row.split() for row in text.splitlines()]
    assert rows[2] == ["40", "1", "of", "20", "40.0%", "3", "stopped"]  # unfinished ones first
    assert "and 5 more" in text
    assert "39" not in [row[0] for row in rows if row]


@given(st.lists(st.floats(width=64), max_size=50), st.integers(1, 20))
def test_a_sparkline_fits_and_keeps_the_order(values: list[float], width: int) -> None:
    line_ = sparkline(values, width)
    assert len(line_) == min(width, len(values))
    assert set(line_) <= set(LEVELS) | {" "}
    if len(values) <= width:
        finite = [(value, char) for value, char in zip(values, line_, strict=True) if char != " "]
        assert len(finite) == sum(map(math.isfinite, values))
        levels = [LEVELS.index(char) for _, char in sorted(finite)]
        assert levels == sorted(levels)
        assert not levels or levels[0] == 0


def test_a_sparkline_averages_what_does_not_fit() -> None:
    assert sparkline([0, 0, 0, 10, 10, 10], 2) == "▁█"
    assert sparkline([0, 7], 80) == "▁█"
    assert sparkline([], 80) == ""
    assert sparkline([math.nan, 3.0], 80) == " ▁"
