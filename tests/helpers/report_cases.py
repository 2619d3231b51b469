"""Small runs to report on, and ways to change what their folders say."""

import json
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

from fedro.report.chart import Chart, Section
from fedro.report.page import report_sections
from fedro.report.series import ReportData
from fedro.runs import read
from fedro.simulation.experiment import Experiment
from fedro.simulation.recording import run_into

BASE = Experiment(
    dataset="digits",
    clients=12,
    partition="iid",
    model="mlp(hidden=4)",
    byzantine=3,
    sampled=7,
    tolerated=2,
    rounds=4,
    local_steps=1,
    batch_size=8,
    evaluate_every=2,
    engine="inline",
)


RULES, ATTACKS, SEEDS = ("mean", "nnm | trimmed_mean"), ("alie", "nan", "silent"), (0, 1)


def train(path: Path, experiment: Experiment, rounds: int | None = None) -> Path:
    with closing(run_into(path, experiment)) as run:
        for done in run:
            if done.round + 1 == rounds:
                break
    return path


def copy(path: Path, to: Path) -> Path:
    return Path(shutil.copytree(path, to))


def edit(folder: Path, change: Any) -> Path:
    """Change each line of rounds.jsonl."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        change(line)
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def charts(data: ReportData) -> dict[str, Chart]:
    return {chart.key: chart for part in report_sections(data) for chart in part.charts}


def section(data: ReportData, key: str) -> Section:
    return next(part for part in report_sections(data) if part.key == key)


def lines_of(data: ReportData, rule: str, attack: str, seed: int) -> list[dict[str, Any]]:
    """Of the run folder itself."""
    paths = [
        run.path
        for run in data.runs
        if (run.config["rule"], run.config["attack"], run.seed) == (rule, attack, seed)
    ]
    assert len(paths) == 1
    return read(paths[0]).rounds


def data_of(text: str) -> str:
    match = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.S)
    assert match
    return match[1]


HOSTILE = """</script><script>alert(1)</script><img src=x onerror=alert(2)>"'&$x_1$"""


def hostile(folder: Path) -> Path:
    """Whatever can be a text in a run folder is one that would do harm."""

    def spoil(line: dict[str, Any]) -> None:
        line["rejected"] = {str(line["sampled"][0]): HOSTILE}
        line["missing"] = {str(line["sampled"][1]): HOSTILE}
        line["attack"] = line["void"] = HOSTILE
        line["takeover"] = True
        line["seconds"][HOSTILE] = 0.1

    edit(folder, spoil)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "problem": HOSTILE}))
    run = json.loads((folder / "run.json").read_text())
    for key in ("attack", "rule", "dataset", "partition", "model"):
        value = json.dumps(HOSTILE + key)
        text, count = re.subn(
            rf"^{key} = .*$", lambda _, k=key, v=value: f"{k} = {v}", run["config"], flags=re.M
        )
        assert count == 1
        run["config"] = text
    run["versions"][HOSTILE] = HOSTILE
    run["fingerprint"]["model"] = run["fingerprint"][HOSTILE] = HOSTILE
    run["created"] = HOSTILE
    (folder / "run.json").write_text(json.dumps(run))
    return folder
