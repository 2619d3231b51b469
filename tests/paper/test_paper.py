"""The paper's figures: the right runs, the right numbers in the pictures, and fair verdicts."""

import csv
import itertools
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from fedro.cli import app
from fedro.paper import FIGURES, Ask, fig1, fig2, fig3, fig4, make
from fedro.paper.evidence import chance_of, interval, paired
from fedro.runs import read
from fedro.simulation.sweeps import expand, read_sweep, sweep, zipped

SCALES = ("smoke", "desk", "paper")


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


# The runs


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("scale", SCALES)
def test_studies_have_runs_of_their_own_names(figure: str, scale: str) -> None:
    study = FIGURES[figure].study(Ask(scale))
    assert len(study.experiments) == sum(len(panel.runs) for panel in study.panels)
    assert bool(study.savings) == (scale != "paper" and not (figure == "fig1" and scale == "desk"))
    for panel in study.panels:
        for settings, experiment in panel.runs.values():
            shown = experiment.as_dict()
            assert all(shown[key] == value for key, value in settings.items() if key in shown)


def test_figure_2_has_the_settings_of_the_papers_table() -> None:
    runs = FIGURES["fig2"].study(Ask("paper")).experiments.values()
    assert {e.sampled for e in runs} == {1, 6, 11, 16, 21, 26, 31, 36, 41, 46, 51, 56}
    for e in runs:
        assert (e.clients, e.byzantine, e.rounds, e.server_lr, e.l2) == (150, 30, 500, 1.0, 1e-4)
        assert e.tolerated == max(0, e.sampled // 2 - 1)
        assert [e.lr(t) for t in (0, 299, 300, 400, 460)] == [0.1, 0.1, 0.02, 0.004, 0.0008]
        assert "takeover" in e.attack
        assert e.model == "femnist_cnn"
    assert all(e.rounds == 500 for e in FIGURES["fig2"].study(Ask("desk")).experiments.values())


def test_figure_2_can_follow_the_text() -> None:
    for e in FIGURES["fig2"].study(Ask("paper", "text")).experiments.values():
        assert e.tolerated == (e.sampled - 1) // 2  # ⌊n̂/2⌋ where that is below half


def test_figures_3_and_4_have_the_settings_of_the_papers_tables() -> None:
    for name, b, extra in (("fig3", 15, {}), ("fig4", 30, {"client_lr": "1/K"})):
        for panel in FIGURES[name].study(Ask("paper")).panels:
            sampled, rounds, rate = {"femnist": (26, 500, 1.0), "cifar10": (29, 1500, 0.25)}[
                panel.dataset
            ]
            for _, e in panel.runs.values():
                assert (e.clients, e.byzantine, e.sampled) == (150, b, sampled)
                assert (e.rounds, e.server_lr, e.l2) == (rounds, rate, 1e-4)
                assert "takeover" not in e.attack
                assert all(getattr(e, key) == value for key, value in extra.items())
    steps = {e.local_steps for e in FIGURES["fig4"].study(Ask("paper")).experiments.values()}
    assert (min(steps), max(steps)) == (5, 35)
    text = FIGURES["fig4"].study(Ask("paper", "text", only="cifar10")).experiments.values()
    assert {e.byzantine for e in text} == {15}


def test_figure_3_has_the_papers_and_the_exact_tolerance() -> None:
    facts = {p.dataset: p.facts for p in FIGURES["fig3"].study(Ask("desk")).panels}
    assert facts == {"femnist": {"paper": 11, "exact": 9}, "cifar10": {"paper": 13, "exact": 10}}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        ({"scale": "huge"}, "unknown scale 'huge'"),
        ({"reading": "figure"}, "unknown reading 'figure'"),
        ({"seeds": 0}, "seeds"),
    ],
)
def test_unknown_wishes_are_explained(ask: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ask(**ask)


def test_one_data_set_of_several() -> None:
    (panel,) = FIGURES["fig3"].study(Ask("desk", only="cifar10")).panels
    assert panel.dataset == "cifar10"
    with pytest.raises(ValueError, match=r"unknown data set 'mnist'.* Known: femnist, cifar10"):
        FIGURES["fig3"].study(Ask("desk", only="mnist"))


# Evidence


def test_interval_is_students() -> None:
    values = [0.1, 0.3, 0.2, 0.7]
    low, high = stats.t.interval(0.95, 3, fmean(values), stats.sem(values))
    assert interval(values) == pytest.approx((fmean(values), low, high))
    assert interval([0.4]).low == -np.inf


def test_interval_holds_the_truth_as_often_as_it_says() -> None:
    draws = np.random.default_rng(0).normal(1.0, 2.0, size=(2000, 3))
    held = fmean(found.low < 1.0 < found.high for found in map(interval, draws.tolist()))
    assert held == pytest.approx(0.95, abs=0.02)


def test_pairs_are_of_the_same_seed() -> None:
    rows = [
        {"seed": s, "attack": a, "accuracy": s + x} for s in (2, 1) for a, x in (("n", 0), ("f", 5))
    ]
    rows.append({"seed": 9, "attack": "f", "accuracy": 100})  # no partner
    assert paired(rows, {"attack": "n"}, {"attack": "f"}) == {2: 5, 1: 5}


def test_chance_of_a_count() -> None:
    assert chance_of(0, 5, 0.0) == 1.0
    assert chance_of(5, 5, 1.0) == 1.0
    assert chance_of(1, 5, 0.0) == 0.0
    assert chance_of(5, 5, 0.1) == pytest.approx(1e-5)


# Verdicts


def fig2_rows(study, broken):
    """Rows as of finished runs, of which `broken(n̂, seed)` were taken over and failed."""
    (panel,) = study.panels
    return [
        {
            "dataset": panel.dataset,
            **settings,
            "accuracy": 0.05 if broken(settings["sampled"], settings["seed"]) else 0.8,
            "safe_probability": fig2.safe(panel, settings["sampled"], settings["tolerated"]),
            "failed": broken(settings["sampled"], settings["seed"]),
            "takeovers": int(broken(settings["sampled"], settings["seed"])),
            "run": name,
        }
        for name, (settings, _) in panel.runs.items()
    ]


def test_figure_2_probabilities_are_the_hypergeometric_tails() -> None:
    (panel,) = FIGURES["fig2"].study(Ask("desk")).panels
    for n, p in ((16, 0.116), (21, 0.391), (26, 0.937), (31, 0.978), (36, 0.9991)):
        exact = stats.hypergeom.cdf(n // 2 - 1, 150, 30, n) ** 500
        assert fig2.safe(panel, n, n // 2 - 1) == pytest.approx(exact, rel=1e-9)
        assert exact == pytest.approx(p, abs=0.001)


@pytest.mark.parametrize(
    ("broken", "verdicts"),
    [
        (lambda n, _: n < 30, ["held", "held", "held", "not held"]),  # 26 fails too often
        (lambda n, s: n < 20 or (n == 21 and s < 3), ["held", "not held", "held", "held"]),
        (lambda n, _: False, ["undecided", "not held", "undecided", "not held"]),
        (lambda n, _: n in (1, 41), ["not held", "not held", "held", "not held"]),
    ],
)
def test_figure_2_verdicts(broken, verdicts: list[str]) -> None:
    study = FIGURES["fig2"].study(Ask("desk"))
    found = fig2.judge(study, fig2_rows(study, broken))
    assert [finding.verdict for finding in found] == verdicts


def test_figure_2_with_one_seed_decides_only_by_counterexample() -> None:
    study = FIGURES["fig2"].study(Ask("desk", seeds=1))
    found = fig2.judge(study, fig2_rows(study, lambda n, _: n < 30))
    assert [finding.verdict for finding in found] == ["undecided", "undecided", "held", "undecided"]


def test_figure_2_a_failure_without_a_takeover_counts_against_it() -> None:
    study = FIGURES["fig2"].study(Ask("desk"))
    rows = fig2_rows(study, lambda n, _: n < 20)
    rows[-1]["failed"] = True
    odd = fig2.judge(study, rows)[2]
    assert odd.verdict == "not held"
    assert rows[-1]["run"] in odd.because


def test_figure_2_without_a_run_to_compare_with_says_nothing_of_that_seed(tmp_path: Path) -> None:
    study = FIGURES["fig2"].study(Ask("smoke"))
    small = {name: e.replace(rounds=1) for name, e in study.experiments.items()}
    wanted = ["digits,sampled=1,seed=0", "digits,sampled=21,seed=0", "digits,sampled=1,seed=1"]
    sweep({name: small[name] for name in wanted}, tmp_path)
    failed = {row["run"]: row["failed"] for row in fig2.table(study, tmp_path)}
    assert failed["digits,sampled=1,seed=1"] is None
    assert failed["digits,sampled=21,seed=0"] is False
    assert len(fig2.judge(study, fig2.table(study, tmp_path))) == 3


def fig3_rows(study, cost, gain=0.0):
    """Final rows: no attack has 0.8 (the seed adds noise to all alike), others cost something."""
    return [
        {
            "dataset": panel.dataset,
            **settings,
            "last": True,
            "round": 40,
            "accuracy": 0.8
            + 0.01 * settings["seed"]
            - (settings["attack"] != "none") * (cost + 0.001 * settings["seed"])
            + (settings["plan"] == "exact") * (gain + 0.0001 * settings["seed"]),
        }
        for panel in study.panels
        for settings, _ in panel.runs.values()
    ]


@pytest.mark.parametrize(
    ("cost", "gain", "verdicts"),
    [
        (0.01, 0.02, ["held", "held", "held"]),
        (0.2, -0.02, ["not held", "not held", "not held"]),
        (0.05, -0.0001, ["undecided", "undecided", "undecided"]),
    ],
)
def test_figure_3_verdicts(cost: float, gain: float, verdicts: list[str]) -> None:
    study = FIGURES["fig3"].study(Ask("desk", only="femnist"))
    found = fig3.judge(study, fig3_rows(study, cost, gain))
    assert [finding.verdict for finding in found] == verdicts


def test_one_seed_decides_nothing() -> None:
    study = FIGURES["fig3"].study(Ask("desk", only="femnist", seeds=1))
    found = fig3.judge(study, fig3_rows(study, 0.3))
    assert {finding.verdict for finding in found} == {"undecided"}


def test_figure_3_needs_every_attack_and_pairs_of_the_same_seed() -> None:
    study = FIGURES["fig3"].study(Ask("desk", only="femnist"))
    rows = fig3_rows(study, 0.01, 0.02)
    without = [row for row in rows if row["attack"] != "foe"]
    first, _, better = fig3.judge(study, without)
    assert first.verdict == "undecided"
    assert "fall of empires no pairs" in first.because
    assert better.verdict == "undecided"
    assert "no pairs" in better.because
    missing = {("foe", 1), ("alie", 2)}  # so only seed 0 has everything
    fewer = [row for row in rows if (row["attack"], row["seed"]) not in missing]
    assert "(one seed)" in fig3.judge(study, fewer)[2].because


@pytest.mark.parametrize(
    ("slope", "verdict"), [(0.01, "held"), (-0.01, "not held"), (0.0, "undecided")]
)
def test_figure_4_verdicts(slope: float, verdict: str) -> None:
    study = FIGURES["fig4"].study(Ask("desk", only="femnist"))
    strength = {"none": 0.0, "alie": 0.0, "mimic": 0.01, "foe": 0.1, "sign_flip": 0.2}
    rows = [
        {
            "dataset": "femnist",
            **settings,
            "accuracy": 0.7
            - strength[settings["attack"]]
            + (slope if strength[settings["attack"]] > 0.05 else 0.0) * settings["local_steps"] / 10
            + (0.01 if settings["seed"] == settings["local_steps"] % 3 else 0.0),
        }
        for settings, _ in study.panels[0].runs.values()
    ]
    (found,) = fig4.judge(study, rows)
    assert found.verdict == verdict
    assert "sign flipping, fall of empires" in found.claim


# The pictures and files


def test_figure_1_in_small() -> None:
    study = fig1.study(Ask("smoke"))
    rows = fig1.table(study, Path())
    assert len(rows) == 49
    for row in rows:
        assert row["n_min_exact"] <= row["n_th"]
        assert row["n_min_exact"] <= row["n_recommended"] <= 100
    (axes,) = fig1.draw(study, rows).axes
    assert list(axes.lines[0].get_ydata()) == [row["n_opt"] for row in rows]


@pytest.mark.slow
def test_figure_1(tmp_path: Path) -> None:
    _, numbers, text = make("fig1", fig1.FIGURE, Ask("paper"), tmp_path, lambda *_: None)
    rows = {int(row["byzantine"]): row for row in rows_of(numbers)}
    assert (rows[200]["n_th"], rows[200]["n_opt"], rows[200]["n_min_exact"]) == ("57", "186", "37")
    assert (rows[400]["n_th"], rows[400]["n_opt"]) == ("601", "1000")
    assert rows[400]["n_min_exact"] == "291"
    assert "**held**" in text.read_text()


def test_figure_2_shows_its_rows() -> None:
    study = FIGURES["fig2"].study(Ask("desk"))
    rows = fig2_rows(study, lambda n, seed: n < 30 and seed < 4)
    upper, lower = fig2.draw(study, rows).axes
    means = dict(zip(*upper.lines[0].get_data(), strict=True))
    assert means[26] == pytest.approx(100 * (4 * 0.05 + 0.8) / 5)
    assert means[31] == pytest.approx(80)
    failed = dict(zip(*lower.lines[2].get_data(), strict=True))
    assert (failed[26], failed[31]) == (80, 0)
    expected = dict(zip(*lower.lines[1].get_data(), strict=True))
    assert expected[21] == pytest.approx(100 * (1 - 0.391), abs=0.1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Figure 3 at the smallest scale, with one seed."""
    out = tmp_path_factory.mktemp("figures")
    make("fig3", fig3.FIGURE, Ask("smoke", seeds=1), out, sweep)
    return out / "fig3-smoke"


def test_a_figure_is_made_of_its_runs(made: Path) -> None:
    rows = rows_of(made / "fig3.csv")
    final = {row["run"]: row["accuracy"] for row in rows if row["last"] == "True"}
    assert len(final) == 10
    for name, accuracy in final.items():
        assert float(accuracy) == read(made / "runs" / name).summary["final"]["accuracy"]
    assert (made / "fig3.png").stat().st_size > 10_000
    text = (made / "fig3.md").read_text()
    assert "fedro reproduce fig3 --scale smoke --seeds 1" in text
    assert "**undecided**" in text
    assert "cores" in text


def test_a_figure_can_be_run_again_from_its_config(made: Path) -> None:
    again = read_sweep(made / "fig3-digits.toml")
    wanted = FIGURES["fig3"].study(Ask("smoke", seeds=1)).experiments
    assert list(again.values()) == list(wanted.values())


def test_a_figure_that_is_finished_is_only_drawn_again(made: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in made.glob("runs/*/summary.json")}
    ran = CliRunner().invoke(
        app, ["reproduce", "fig3", "--scale", "smoke", "--seeds", "1", "--out", str(made.parent)]
    )
    assert ran.exit_code == 0, ran.output
    assert before == {path: path.stat().st_mtime_ns for path in made.glob("runs/*/summary.json")}


def test_figures_without_all_runs_say_so(made: Path, tmp_path: Path) -> None:
    """One run is not there: the figure is drawn of the others."""
    study = FIGURES["fig3"].study(Ask("smoke", seeds=1))
    gone, *kept = study.experiments
    (tmp_path / "fig3-smoke" / "runs").mkdir(parents=True)
    for name in kept:
        (tmp_path / "fig3-smoke" / "runs" / name).symlink_to(made / "runs" / name)
    *_, text = make("fig3", fig3.FIGURE, Ask("smoke", seeds=1), tmp_path, lambda *_: None)
    assert "**9 of 10 runs are finished.**" in text.read_text()
    assert gone not in (tmp_path / "fig3-smoke" / "fig3.csv").read_text()


def test_one_data_set_has_files_of_its_own(made: Path) -> None:
    make("fig3", fig3.FIGURE, Ask("smoke", only="digits", seeds=1), made.parent, lambda *_: None)
    assert (made / "fig3-digits.md").exists()
    assert "](fig3-digits.png)" in (made / "fig3-digits.md").read_text()


def test_a_reading_that_changes_nothing_has_no_runs_of_its_own(made: Path) -> None:
    make("fig3", fig3.FIGURE, Ask("smoke", "text", seeds=1), made.parent, lambda *_: None)
    assert "of 10 runs" not in (made / "fig3.md").read_text()


def test_all_figures_go_on_without_one_that_cannot_be_made(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("fedro.cli.sweep.shown", lambda *_: {})
    ran = CliRunner().invoke(app, ["reproduce", "all", "--scale", "smoke", "--out", str(tmp_path)])
    assert ran.exit_code == 1
    assert "no run of fig2 has been finished" in ran.output
    assert "no run of fig4 has been finished" in ran.output
    assert (tmp_path / "fig1-smoke" / "fig1.png").exists()


def test_nothing_finished_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run of fig2 has been finished"):
        make("fig2", fig2.FIGURE, Ask("smoke"), tmp_path, lambda *_: None)
    assert not list(tmp_path.rglob("*.png"))


def test_unknown_figures_are_explained() -> None:
    ran = CliRunner().invoke(app, ["reproduce", "fig5"])
    assert ran.exit_code == 2
    assert "unknown figure 'fig5'" in ran.output


def test_desk_and_paper_have_the_same_points_where_they_can() -> None:
    """What is saved is never what the claim is about: n̂ in Figure 2, attacks in 3 and 4."""
    for name, key in (("fig2", "sampled"), ("fig3", "attack"), ("fig4", "attack")):
        desk, paper = (
            {getattr(e, key) for e in FIGURES[name].study(Ask(scale)).experiments.values()}
            for scale in ("desk", "paper")
        )
        assert desk == paper


def test_experiments_are_valid_sweeps() -> None:
    for name, scale in itertools.product(("fig2", "fig4"), SCALES):
        for panel in FIGURES[name].study(Ask(scale)).panels:
            experiments = [experiment for _, experiment in panel.runs.values()]
            assert list(expand(zipped(experiments)).values()) == experiments
