"""The report: what it says is what the run folders say, whatever they hold."""

import csv
import html
import json
import math
import re
import shutil
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from scipy.stats import hypergeom
from typer.testing import CliRunner

from fedro.cli import app
from fedro.report import write_report
from fedro.report.chart import Chart, Heat, Mark, Panel, Section, thinned
from fedro.report.comparison import ranges
from fedro.report.interactive import plots
from fedro.report.page import page as make_page
from fedro.report.pictures import picture
from fedro.report.runs import find, load
from fedro.report.sections import sections
from fedro.report.series import Study, study
from fedro.runs import RunFolderError, read
from fedro.simulation.experiment import Experiment
from fedro.simulation.recording import run_into

if TYPE_CHECKING:
    from playwright.sync_api import Page

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


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rules, three attacks, two seeds; in folders of folders."""
    folder = tmp_path_factory.mktemp("runs")
    for number, (rule, attack, seed) in enumerate(product(RULES, ATTACKS, SEEDS)):
        experiment = BASE.replace(rule=rule, attack=attack, seed=seed)
        train(folder / f"seed-{seed}" / f"run-{number}", experiment)
    return folder


@pytest.fixture(scope="module")
def found(runs: Path) -> Study:
    return study(*find([runs]))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which the attack tells in each round what it chose, as `worst` does."""

    def choose(line: dict[str, Any]) -> None:
        line["attack"] = ("foe", "alie", None)[line["round"] % 3]

    return edit(train(tmp_path_factory.mktemp("one") / "run", BASE.replace(attack="alie")), choose)


def copy(path: Path, to: Path) -> Path:
    return Path(shutil.copytree(path, to))


def edit(folder: Path, change: Any) -> Path:
    """Change each line of rounds.jsonl."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        change(line)
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def charts(study: Study) -> dict[str, Chart]:
    return {chart.key: chart for part in sections(study) for chart in part.charts}


def section(study: Study, key: str) -> Section:
    return next(part for part in sections(study) if part.key == key)


def lines_of(study: Study, rule: str, attack: str, seed: int) -> list[dict[str, Any]]:
    """Of the run folder itself."""
    paths = [
        run.path
        for run in study.runs
        if (run.config["rule"], run.config["attack"], run.seed) == (rule, attack, seed)
    ]
    assert len(paths) == 1
    return read(paths[0]).rounds


# ------------------------------------------------------------------ which runs, and how grouped


def test_series_are_runs_that_differ_in_their_seed(found: Study) -> None:
    assert len(found.runs) == 12
    assert [series.name for series in found.series] == [
        f"{rule} · {attack}" for rule in RULES for attack in ATTACKS
    ]
    assert all([run.seed for run in series.runs] == [0, 1] for series in found.series)
    assert found.differing == ["rule", "attack"]
    assert found.panels == list(ATTACKS)
    assert {series.line for series in found.series} == set(RULES)
    assert {series.line: series.color for series in found.series} == dict(
        zip(RULES, (0, 1), strict=True)
    )
    assert found.notes == []


def test_one_run_is_named_by_rule_and_attack(one: Path) -> None:
    only = study(*find([one]))
    assert [(s.name, s.panel) for s in only.series] == [("nnm | trimmed_mean · alie", "")]
    assert only.differing == []
    assert "rule-attack" not in {part.key for part in sections(only)}


@pytest.mark.slow
def test_keys_that_follow_from_others_are_not_in_names(tmp_path: Path) -> None:
    short = BASE.replace(rounds=1)
    train(tmp_path / "a", short.replace(rule="fltrust", root=20))
    train(tmp_path / "b", short.replace(local_steps=2))
    train(tmp_path / "c", short)
    found = study(*find([tmp_path]))
    assert found.differing == ["rule", "root", "local_steps"]
    assert [series.name for series in found.series] == [
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
    found = study(*find([tmp_path]))
    assert len(found.series) == 56
    assert found.panels == ["alie", "foe"]
    assert len({series.line for series in found.series}) == 28
    assert found.series[0].line == "krum · client_lr=0.01"


@pytest.mark.slow
def test_numbers_are_in_order(tmp_path: Path) -> None:
    for steps in (10, 2, 1):
        train(tmp_path / str(steps), BASE.replace(rounds=1, local_steps=steps))
    names = [series.name for series in study(*find([tmp_path])).series]
    assert names == ["local_steps=1", "local_steps=2", "local_steps=10"]


def test_keys_that_older_runs_lack_have_their_defaults(one: Path, tmp_path: Path) -> None:
    old = copy(one, tmp_path / "old")
    run = json.loads((old / "run.json").read_text())
    assert 'output = "last"\n' in run["config"]
    run["config"] = run["config"].replace('output = "last"\n', "").replace("seed = 0", "seed = 1")
    (old / "run.json").write_text(json.dumps(run))
    found = study(*find([one, tmp_path]))
    assert found.differing == []
    assert [run.seed for run in found.series[0].runs] == [0, 1]


def test_the_same_run_counts_once(one: Path, tmp_path: Path) -> None:
    again = copy(one, tmp_path / "again")
    found = study(*find([again, one, one.parent]))
    assert len(found.runs) == 1
    assert found.notes == [f"{one} is the same run as {again}, and is left out."]


def test_an_unfinished_run_is_shown_as_far_as_it_went(tmp_path: Path) -> None:
    path = train(tmp_path / "run", BASE, rounds=3)
    found = study(*find([path]))
    assert found.notes == [f"{path} is unfinished: 3 of 4 rounds are shown."]
    assert charts(found)["accuracy"].panels[0].marks[0].x == [1]  # type: ignore[union-attr]
    text = make_page(found, sections(found))
    assert "(unfinished)" in text
    assert "3 of 4" in text
    assert "seed 0, unfinished" in text


def test_a_run_that_was_never_evaluated(tmp_path: Path) -> None:
    found = study(*find([train(tmp_path / "run", BASE, rounds=1)]))
    assert not {"accuracy", "fairness", "loss"} & charts(found).keys()
    assert "train-loss" in charts(found)
    assert make_page(found, sections(found))


def test_a_run_without_any_round(tmp_path: Path, one: Path) -> None:
    path = copy(one, tmp_path / "run")
    (path / "summary.json").unlink()
    (path / "rounds.jsonl").write_text("")
    files = write_report([path], tmp_path / "r.html", png=tmp_path, csv=tmp_path).files
    assert all(file.stat().st_size for file in files)


def test_folders_that_hold_no_run(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=f"^no runs found. {tmp_path} holds no run"):
        find([tmp_path])
    with pytest.raises(RunFolderError, match=r"nowhere is not a folder"):
        find([runs, tmp_path / "nowhere"])
    assert find([runs, tmp_path])[1] == [f"{tmp_path} holds no run, and no folder inside it does."]


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
        find([bad])
    found, troubles = find([runs, tmp_path])
    assert len(found) == 12
    assert len(troubles) == 1
    assert re.search(message, troubles[0])
    assert str(bad) in troubles[0]
    whole = study(found, troubles)
    assert html.escape(troubles[0]) in make_page(whole, sections(whole))


def test_a_folder_without_its_run_json_is_damaged(one: Path, tmp_path: Path) -> None:
    bad = copy(one, tmp_path / "bad")
    (bad / "run.json").unlink()
    with pytest.raises(RunFolderError, match=r"bad holds no run: it has no run.json"):
        find([tmp_path])


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
        load(path)
    with pytest.raises(RunFolderError, match=r"line 1 of rounds\.jsonl has no 'round'"):
        load(edit(copy(one, tmp_path / "other"), lambda line: line.pop("round")))


# ----------------------------------------------------------------------- what the charts say


EVERY_ROUND = ("train-loss", "kappa")


@pytest.mark.parametrize(
    ("key", "what", "value"),
    [
        ("accuracy", "", lambda line: line.get("score", {}).get("accuracy")),
        ("fairness", "mean client", lambda line: line.get("score", {}).get("clients")),
        ("fairness", "worst tenth", lambda line: line.get("score", {}).get("worst")),
        ("loss", "", lambda line: line.get("score", {}).get("loss")),
        ("train-loss", "", lambda line: line["train_loss"]),
        ("kappa", "κ proved", lambda line: line["kappa_proved"]),
    ],
)
def test_charts_over_rounds_are_the_lines_of_the_folders(
    found: Study, key: str, what: str, value: Any
) -> None:
    chart = charts(found)[key]
    assert [panel.title for panel in chart.panels] == list(ATTACKS)
    for panel in chart.panels:
        assert isinstance(panel, Panel)
        for rule in RULES:
            given = [mark for mark in panel.marks if (mark.name, mark.what) == (rule, what)]
            every = [lines_of(found, rule, panel.title, seed) for seed in SEEDS]
            table = [[value(lines[i]) for lines in every] for i in range(4)]
            if not any(number is not None for row in table for number in row):
                assert given == []
                continue
            rounds = [i for i in range(4) if "score" in every[0][i] or key in EVERY_ROUND]
            assert list(given[0].x) == rounds
            known = [[v for v in table[i] if v is not None] for i in rounds]
            means = [sum(row) / len(row) if row else None for row in known]
            assert given[0].y == pytest.approx(means, rel=1e-12)
            assert given[0].low == [min(row, default=None) for row in known]
            assert given[0].high == [max(row, default=None) for row in known]


def test_kappa_seen_is_drawn_but_for_zeros(found: Study) -> None:
    chart = charts(found)["kappa"]
    for panel in chart.panels:
        assert isinstance(panel, Panel)
        for mark in panel.marks:
            if mark.what != "κ seen":
                continue
            every = [lines_of(found, mark.name, panel.title, seed) for seed in SEEDS]
            for number, shown in zip(mark.x, mark.y, strict=True):
                row = [lines[int(number)]["kappa_seen"] for lines in every]
                known = [value for value in row if value is not None]
                wanted = sum(known) / len(known) if known else None
                zero = wanted == 0 and panel.y.log
                assert shown == (None if zero or wanted is None else pytest.approx(wanted))


def test_one_seed_is_drawn_to_the_bit(one: Path) -> None:
    drawn = charts(study(*find([one])))
    lines = read(one).rounds
    mark = drawn["kappa"].panels[0].marks[0]  # type: ignore[union-attr]
    shown = dict(zip(mark.x, mark.y, strict=True))
    assert mark.low is None
    assert shown == {line["round"]: line["kappa_seen"] or None for line in lines}
    time = drawn["time"].panels[0]
    assert isinstance(time, Panel)
    unit = 1000 if time.x.title.startswith("milliseconds") else 1
    for part in time.marks:
        mean = sum(line["seconds"][part.name] for line in lines[1:]) / 3
        assert float(part.x[0]) == pytest.approx(unit * mean)


def test_rule_and_attack_with_the_worst_marked(found: Study) -> None:
    heat = charts(found)["rule-attack"].panels[0]
    assert isinstance(heat, Heat)
    assert (list(heat.rows), list(heat.columns)) == (list(RULES), list(ATTACKS))
    for row, rule in enumerate(RULES):
        finals = [
            sum(lines_of(found, rule, attack, seed)[-1]["final"]["accuracy"] for seed in SEEDS) / 2
            for attack in ATTACKS
        ]
        assert heat.values[row] == pytest.approx(finals)
        assert finals[heat.worst[row] or 0] == min(finals)
        assert heat.texts[row] == [f"{100 * value:.1f}%" for value in finals]


def test_bad_clients_against_what_is_tolerated(found: Study) -> None:
    panel = charts(found)["bad-clients"].panels[0]
    assert isinstance(panel, Panel)
    counts = {
        (line["round"], len(line["byzantine"]))
        for seed in SEEDS
        for line in lines_of(found, "mean", "alie", seed)
    }
    shown: dict[str, set[Any]] = {
        mark.name: set(zip(mark.x, mark.y, strict=True)) for mark in panel.marks
    }
    assert shown["within b̂"] | shown.get("more than b̂", set()) == counts
    assert all(bad <= 2 for _, bad in shown["within b̂"])
    table = section(found, "bad").tables[0]
    safe = hypergeom(12, 3, 7).cdf(2) ** 4
    assert table.rows[0][:5] == ["12", "3", "7", "2", "4"]
    assert table.rows[0][5] == f"{100 * safe:.0f}%"
    over = sum(
        len(line["byzantine"]) > 2
        for seed in SEEDS
        for line in lines_of(found, "mean", "alie", seed)
    )
    assert table.rows[0][7] == f"{over} of 8"


def test_the_ledger_has_every_reply_that_was_not_used(found: Study) -> None:
    chart = charts(found)["ledger"]
    for rule, (kind, attack) in product(RULES, (("rejected", "nan"), ("missing", "silent"))):
        panel = next(panel for panel in chart.panels if panel.title == f"{rule} · {attack}")
        assert isinstance(panel, Panel)
        events = sorted(
            (line["round"], int(client))
            for seed in SEEDS
            for line in lines_of(found, rule, attack, seed)
            for client in line[kind]
        )
        assert events
        assert [mark.name for mark in panel.marks] == [kind]
        assert sorted(zip(panel.marks[0].x, panel.marks[0].y, strict=True)) == events
    by_reason = section(found, "ledger").tables[0]
    assert {tuple(row[1:3]) for row in by_reason.rows} == {
        ("rejected", "holds NaN or Inf"),
        ("missing", "did not answer"),
    }
    quiet = study([run for run in found.runs if run.config["attack"] == "alie"])
    told = section(quiet, "ledger").text
    assert {"No reply was rejected.", "No reply was missing."} <= set(told)


@pytest.mark.slow
def test_void_rounds_and_takeovers_are_told(tmp_path: Path) -> None:
    train(tmp_path / "a", BASE.replace(attack="nan", sampled=6, rounds=8))
    train(tmp_path / "b", BASE.replace(attack="takeover", tolerated=1, rounds=8))
    tables = section(study(*find([tmp_path])), "ledger").tables
    rows = {table.header[2]: table.rows for table in tables if len(table.header) == 5}
    for name, key in (("a", "void"), ("b", "takeover")):
        which = [line["round"] for line in read(tmp_path / name).rounds if line[key]]
        told = rows["rounds void" if key == "void" else "rounds taken over"]
        assert [row[3] for row in told] == [ranges(which)]


def test_what_worst_chose_is_shown(one: Path) -> None:
    found = study(*find([one]))
    mark = charts(found)["choices"].panels[0].marks[0]  # type: ignore[union-attr]
    chosen = [(line["round"], line["attack"]) for line in read(one).rounds if line["attack"]]
    assert list(zip(mark.x, mark.y, strict=True)) == chosen


def test_a_backdoor_is_shown(tmp_path: Path) -> None:
    path = train(tmp_path / "run", BASE.replace(attack="backdoor", rounds=2))
    mark = charts(study(*find([path])))["backdoor"].panels[0].marks[0]  # type: ignore[union-attr]
    assert mark.y == [read(path).rounds[-1]["score"]["backdoor"]]


def test_invitations_and_examples(found: Study) -> None:
    drawn = charts(found)
    panel = drawn["invitations"].panels[0]
    assert isinstance(panel, Panel)
    total = [0] * 12
    for seed in SEEDS:
        for line in lines_of(found, "mean", "alie", seed):
            for client in line["sampled"]:
                total[client] += 1
    honest, bad, expected = panel.marks
    assert [a + b for a, b in zip(honest.y, bad.y, strict=True)] == total  # type: ignore[operator]
    assert expected.y == [8 * 7 / 12] * 2
    summaries = [read(run.path).summary for run in found.series[0].runs]
    sizes = [summary["examples"] for summary in summaries if summary]
    mark = drawn["examples"].panels[0].marks[0]  # type: ignore[union-attr]
    assert mark.y == pytest.approx([sum(column) / 2 for column in zip(*sizes, strict=True)])


def test_older_folders_do_not_tell_examples(one: Path, tmp_path: Path) -> None:
    old = copy(one, tmp_path / "old")
    summary = json.loads((old / "summary.json").read_text())
    del summary["examples"]
    (old / "summary.json").write_text(json.dumps(summary))
    found = study(*find([old]))
    assert "examples" not in charts(found)
    assert section(found, "clients").text


@pytest.mark.slow
def test_nobody_bad_and_no_classes(tmp_path: Path) -> None:
    for seed in (0, 1):
        experiment = Experiment(
            dataset="synthetic(dim=3, samples=8)", rounds=3, evaluate_every=1, seed=seed
        )
        train(tmp_path / str(seed), experiment)
        train(tmp_path / f"mean-{seed}", experiment.replace(rule="mean"))
    written = write_report([tmp_path], tmp_path / "r.html", png=tmp_path, csv=tmp_path)
    found = written.study
    assert section(found, "bad").text == ["No client is bad in any of these runs."]
    assert "accuracy" not in charts(found)
    heat = charts(found)["rule-attack"].panels[0]
    assert isinstance(heat, Heat)
    assert heat.measure == "test loss"
    assert [run.clients for run in found.runs] == [10] * 4  # from the data: no key says it


def test_numbers_that_are_not_finite_are_gaps(one: Path, tmp_path: Path) -> None:
    def blow_up(line: dict[str, Any]) -> None:
        line["train_loss"] = math.nan if line["round"] == 2 else line["train_loss"]
        line["kappa_seen"] = math.inf
        line["kappa_proved"] = None
        if "score" in line:
            line["score"]["loss"] = None

    found = study(*find([edit(copy(one, tmp_path / "run"), blow_up)]))
    drawn = charts(found)
    assert not {"loss", "kappa"} & drawn.keys()
    mark = drawn["train-loss"].panels[0].marks[0]  # type: ignore[union-attr]
    assert mark.y[2] is None
    assert all(value is not None for i, value in enumerate(mark.y) if i != 2)
    assert "NaN" not in data_of(make_page(found, sections(found)))


def test_numbers_below_zero_are_drawn(one: Path, tmp_path: Path) -> None:
    path = edit(copy(one, tmp_path / "run"), lambda line: line.update({"train_loss": -1.0}))
    files = write_report([path], tmp_path / "r.html", png=tmp_path).files
    mark = charts(study(*find([path])))["train-loss"].panels[0].marks[0]  # type: ignore[union-attr]
    assert list(mark.y) == [-1.0] * 4
    assert len(files) > 1


# ------------------------------------------------------------------------------- the page


def data_of(text: str) -> str:
    match = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.S)
    assert match
    return match[1]


def test_the_page_holds_what_the_charts_say(found: Study) -> None:
    parts = sections(found)
    drawn = json.loads(data_of(make_page(found, parts)))["plots"]
    for part in parts:
        for chart in part.charts:
            for number, plot in enumerate(plots(chart)):
                same = json.loads(json.dumps(plot, default=list))
                assert drawn[f"{chart.key}-{number}"] == {"chart": chart.key, **same}
                go.Figure(data=same["data"], layout=same["layout"])  # Plotly knows every key


def test_every_run_can_be_run_again(found: Study) -> None:
    text = make_page(found, sections(found))
    configs = [
        html.unescape(c) for c in re.findall(r'<pre id="config-\d+-\d+">(.*?)</pre>', text, re.S)
    ]
    assert sorted(configs) == sorted((run.path / "config.toml").read_text() for run in found.runs)
    assert "fedro run config.toml" in text
    assert found.runs[0].fingerprint["data"] in text


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


@pytest.fixture
def spoilt(one: Path, tmp_path: Path) -> Path:
    """Two runs, so that their names are what differs."""
    copy(one, tmp_path / "runs" / "<b>plain</b>")
    return hostile(copy(one, tmp_path / "runs" / HOSTILE.replace("/", ""))).parent


@pytest.mark.slow
def test_what_runs_say_is_text_and_nothing_else(spoilt: Path, tmp_path: Path) -> None:
    files = write_report([spoilt], tmp_path / "r.html", png=tmp_path, csv=tmp_path).files
    text = files[0].read_text()
    ours = text[: text.index('<script type="application/json"')]
    assert "<script" not in ours
    assert "<img" not in ours
    assert "onerror=alert(2)&gt;" in ours
    assert "<" not in data_of(text)
    assert text.count("</script>") - text.count("<script") == 0
    for plot in json.loads(data_of(text))["plots"].values():
        for trace in plot["data"]:
            trace.pop("meta")  # which the script compares, and nobody shows
        assert "<script" not in json.dumps(plot)
    with (tmp_path / "ledger.csv").open(newline="") as file:
        assert {row["reason"] for row in csv.DictReader(file)} == {HOSTILE}


def test_a_large_page_is_thinned_and_says_so(found: Study) -> None:
    parts = sections(found)
    small = make_page(found, parts, limit=len(data_of(make_page(found, parts))))
    assert "To keep this page small" not in small
    long = Mark("a", list(range(1001)), [float(i) for i in range(1001)])
    panel = Panel("", [long], *(charts(found)["accuracy"].panels[0].x,) * 2)  # type: ignore[union-attr]
    part = Section("s", "t", "l", charts=[Chart("c", "t", "", [panel])])
    text = make_page(found, [part], limit=5000)
    match = re.search(r"at most (\d+) of up to 1001 points", text)
    assert match
    shown = json.loads(data_of(text))["plots"]["c-0"]["data"][0]
    assert len(shown["x"]) == int(match[1])
    assert (shown["x"][0], shown["x"][-1]) == (0, 1000)
    assert shown["x"] == shown["y"]
    assert len(data_of(text)) <= 5000


@given(st.integers(2, 300), st.integers(2, 100))
def test_thinning_keeps_points_together(count: int, most: int) -> None:
    x = list(range(count))
    mark = Mark("a", x, [float(i) for i in x], low=[i - 1.0 for i in x], high=[i + 1.0 for i in x])
    axis = Panel("", [], None, None)  # type: ignore[arg-type]
    whole = Section(
        "s", "t", "l", charts=[Chart("c", "t", "", [Panel("", [mark], axis.x, axis.y)])]
    )
    (thin,) = thinned([whole], most)
    kept = thin.charts[0].panels[0].marks[0]  # type: ignore[union-attr]
    assert len(kept.x) == min(count, most)
    assert (kept.x[0], kept.x[-1]) == (0, count - 1)
    assert kept.low is not None
    assert all(
        a == b == c + 1
        for a, b, c in zip(kept.x, kept.y, kept.low, strict=True)  # type: ignore[operator]
    )


@given(st.sets(st.integers(0, 60)))
def test_ranges_of_rounds(numbers: set[int]) -> None:
    read_back: set[int] = set()
    for part in filter(None, ranges(sorted(numbers)).split(", ")):
        first, _, last = part.partition("–")
        read_back.update(range(int(first), int(last or first) + 1))
    assert read_back == numbers


# ------------------------------------------------------------- pictures, tables, command line


@pytest.mark.slow
def test_pictures_show_the_same(found: Study, runs: Path, tmp_path: Path) -> None:
    chart = charts(found)["accuracy"]
    figure = picture(chart)
    for axes, panel in zip(figure.axes, chart.panels, strict=True):
        assert isinstance(panel, Panel)
        drawn = [list(line.get_ydata()) for line in axes.get_lines()]  # type: ignore[arg-type]
        assert drawn == [list(mark.y) for mark in panel.marks]
        assert (axes.get_xlabel(), axes.get_ylabel()) == (panel.x.title, panel.y.title)
    plt.close(figure)
    files = write_report([runs], tmp_path / "r.html", png=tmp_path / "png").files
    assert [file.name for file in files[1:]] == [f"{key}.png" for key in charts(found)]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files[1:])


def test_tables_hold_every_number(found: Study, runs: Path, tmp_path: Path) -> None:
    write_report([runs], tmp_path / "r.html", csv=tmp_path)
    table: dict[str, list[dict[str, str]]] = {}
    for name in ("runs", "rounds", "clients", "ledger"):
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            table[name] = list(csv.DictReader(file))
    assert [len(table[name]) for name in ("runs", "rounds", "clients")] == [12, 48, 144]
    for row in table["runs"]:
        folder = read(Path(row["folder"]))
        assert folder.summary is not None
        assert float(row["final_accuracy"]) == folder.summary["final"]["accuracy"]
        assert int(row["rounds_over_tolerated"]) == folder.summary["overrun"]
        assert float(row["probability_none_over"]) == pytest.approx(hypergeom(12, 3, 7).cdf(2) ** 4)
        assert row["rule"] == folder.config["rule"]
    lines = {
        (str(run.path), line["round"]): line for run in found.runs for line in read(run.path).rounds
    }
    for row in table["rounds"]:
        line = lines[row["folder"], int(row["round"])]
        assert row["train_loss"] == str(line["train_loss"])
        assert int(row["byzantine"]) == len(line["byzantine"])
        assert row["test_loss"] == str(line["score"]["loss"] if "score" in line else "")
    lost = [
        (path, str(number), client, reason)
        for (path, number), line in lines.items()
        for kind in ("rejected", "missing")
        for client, reason in line[kind].items()
    ]
    told = [
        tuple(row[k] for k in ("folder", "round", "client", "reason")) for row in table["ledger"]
    ]
    assert sorted(told) == sorted(lost)
    assert sum(int(row["invited"]) for row in table["clients"]) == 12 * 4 * 7


def test_the_command(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "report.html"
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(
        app, ["report", str(runs), str(tmp_path / "empty"), "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert str(out) in done.stdout.replace("\n", "")
    assert "empty holds no run" in done.stderr
    assert [file.name for file in out.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}/nowhere"], "nowhere is not a folder"),
        (["{}/empty"], "no runs found"),
        (["{runs}", "--out", "{}/empty"], "cannot write {}/empty: Is a directory"),
        (["{runs}", "--out", "{}/file/x.html"], "cannot write {}/file/x.html"),
    ],
)
def test_errors_are_told(arguments: list[str], message: str, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    given = [text.format(tmp_path, runs=runs) for text in arguments]
    done = CliRunner().invoke(app, ["report", *given])
    assert done.exit_code == 2
    assert message.format(tmp_path) in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]


# ---------------------------------------------------------------------------- in a browser


def opened(page: "Page", path: Path) -> "Page":
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-drawn=all]", state="attached", timeout=60_000)
    return page


def traces(page: "Page", key: str) -> list[dict[str, Any]]:
    """What Plotly holds of a chart's panel."""
    found: list[dict[str, Any]] = page.evaluate(
        """key => document.getElementById(key).data.map(t => ({
            name: t.meta.name, role: t.meta.role, visible: t.visible !== false,
            x: [...t.x], y: [...t.y], z: t.z, color: t.line?.color ?? t.marker?.color,
        }))""",
        key,
    )
    return found


@pytest.fixture(scope="module")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([runs], tmp_path_factory.mktemp("report") / "report.html").files[0]


@pytest.mark.slow
def test_browser_shows_the_numbers_of_the_folders(page: "Page", report: Path, found: Study) -> None:
    opened(page, report)
    for number, attack in enumerate(ATTACKS):
        for trace in traces(page, f"accuracy-{number}"):
            if trace["role"] != "line":
                continue
            every = [lines_of(found, trace["name"], attack, seed) for seed in SEEDS]
            finals = [
                [line["score"]["accuracy"] for line in rounds if "score" in line]
                for rounds in every
            ]
            assert trace["x"] == [1, 3]
            assert trace["y"] == pytest.approx([sum(row) / 2 for row in zip(*finals, strict=True)])
    for row, rule in enumerate(RULES):
        finals_of = [
            sum(lines_of(found, rule, attack, seed)[-1]["final"]["accuracy"] for seed in SEEDS) / 2
            for attack in ATTACKS
        ]
        assert traces(page, "rule-attack-0")[0]["z"][row] == pytest.approx(finals_of)
    drawn = page.locator(".plot .main-svg").count()
    assert drawn >= page.locator(".plot").count() > 10
    entries = sum(len(line["missing"]) for line in lines_of(found, "mean", "silent", 0))
    page.locator("#ledger summary").click()
    rows = [row.split("\t") for row in page.locator("#ledger details tr").all_inner_texts()]
    assert sum(int(row[6]) for row in rows if row[:2] == ["mean · silent", "0"]) == entries
    assert entries > 0


@pytest.mark.slow
def test_browser_legend_hides_and_shows(page: "Page", report: Path) -> None:
    opened(page, report)
    key = page.locator('.legend[data-chart="accuracy"] button', has_text="trimmed_mean")

    def shown() -> set[str]:
        panels = [trace for n in range(3) for trace in traces(page, f"accuracy-{n}")]
        return {trace["name"] for trace in panels if trace["visible"]}

    assert shown() == set(RULES)
    key.click()
    assert shown() == {"mean"}
    assert key.get_attribute("aria-pressed") == "false"
    assert {trace["visible"] for trace in traces(page, "loss-0")} == {True}  # another chart
    key.click()
    assert shown() == set(RULES)
    key.dblclick()
    assert shown() == {"nnm | trimmed_mean"}
    key.dblclick()
    assert shown() == set(RULES)


@pytest.mark.slow
def test_browser_dark_and_light(page: "Page", report: Path) -> None:
    def colors() -> tuple[str, str, str]:
        ink, paper = page.evaluate(
            "[document.getElementById('bad-clients-0').layout.font.color,"
            " getComputedStyle(document.body).backgroundColor]"
        )
        level = [t["color"] for t in traces(page, "bad-clients-0") if t["name"] == "b̂, tolerated"]
        return ink, paper, level[0]

    page.emulate_media(color_scheme="light")
    opened(page, report)
    light = colors()
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(300)
    dark = colors()
    assert all(a != b for a, b in zip(light, dark, strict=True))
    page.emulate_media(color_scheme="light")
    page.wait_for_timeout(300)
    assert colors() == light


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_browser_nothing_is_wider_than_the_screen(page: "Page", report: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, report)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    wide = page.evaluate(
        """[...document.querySelectorAll("main *")]
           .filter(e => !e.closest(".scroll, .table, pre"))
           .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
           .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert wide == []
    page.set_viewport_size({"width": 700, "height": 800})  # the phone is turned
    page.wait_for_timeout(600)
    assert 600 < page.evaluate("document.getElementById('time-0').layout.width") < 700


@pytest.mark.slow
def test_browser_runs_nothing_of_what_runs_say(page: "Page", spoilt: Path, tmp_path: Path) -> None:
    said: list[str] = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    opened(page, write_report([spoilt], tmp_path / "r.html").files[0])
    assert said == []
    assert page.locator("img[src=x]").count() == 0
    assert HOSTILE in page.locator("#ledger").inner_text()
    assert "<script>" in page.locator("#choices-0").inner_text()  # as Plotly shows it: a text


@pytest.mark.slow
def test_browser_copies_a_configuration(page: "Page", report: Path, found: Study) -> None:
    opened(page, report)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#again summary").first.click()
    page.locator("#again button.copy").first.click()
    page.locator("#again button.copy", has_text="copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == (found.series[0].runs[0].path / "config.toml").read_text()


@pytest.mark.slow
def test_browser_prints_light_and_as_wide_as_paper(page: "Page", report: Path) -> None:
    page.emulate_media(color_scheme="dark")
    opened(page, report)
    page.evaluate(
        """addEventListener("beforeprint", () => {
            const layout = document.getElementById("time-0").layout;
            window.printed = [layout.font.color, layout.width];
        })"""
    )
    before = page.evaluate("document.getElementById('time-0').layout.width")
    assert page.pdf(format="A4").startswith(b"%PDF")
    ink, width = page.evaluate("window.printed")
    assert (ink, width) == ("#1c2024", 680)
    assert page.evaluate("document.getElementById('time-0').layout.width") == before > 680
