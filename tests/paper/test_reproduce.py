"""Reproducing a figure: its files, its runs, and what happens when runs are missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedro.cli import app
from fedro.paper import FigureRequest, fig2, fig3, reproduce_figure
from fedro.runs import read
from fedro.simulation.sweeps import read_sweep
from paper_cases import planned, redraw, rows_of, run_here

pytestmark = pytest.mark.slow  # its tests train models or start processes


@pytest.fixture(scope="module", autouse=True)
def _few_rounds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fig2, "SMOKE_ROUNDS", 4)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Figure 3 at the smallest scale, with one seed."""
    out = tmp_path_factory.mktemp("figures")
    reproduce_figure("fig3", fig3.FIGURE, FigureRequest("smoke", seeds=1), out, run_here)
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
    wanted = planned("fig3", "smoke", seeds=1).experiments
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
    runs = planned("fig3", "smoke", seeds=1)
    gone, *kept = runs.experiments
    (tmp_path / "fig3-smoke" / "runs").mkdir(parents=True)
    for name in kept:
        (tmp_path / "fig3-smoke" / "runs" / name).symlink_to(made / "runs" / name)
    *_, text = redraw("fig3", tmp_path, "smoke", seeds=1)
    assert "**9 of 10 runs are finished.**" in text.read_text()
    assert gone not in (tmp_path / "fig3-smoke" / "fig3.csv").read_text()


def test_one_data_set_has_files_of_its_own(made: Path) -> None:
    reproduce_figure(
        "fig3",
        fig3.FIGURE,
        FigureRequest("smoke", only="digits", seeds=1),
        made.parent,
        lambda *_: None,
    )
    assert (made / "fig3-digits.md").exists()
    assert "](fig3-digits.png)" in (made / "fig3-digits.md").read_text()


def test_a_reading_that_changes_nothing_has_no_runs_of_its_own(made: Path) -> None:
    redraw("fig3", made.parent, "smoke", "text", seeds=1)
    assert "of 10 runs" not in (made / "fig3.md").read_text()


def test_all_figures_go_on_without_one_that_cannot_be_made(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("fedro.cli.sweep.run_and_show", lambda *_: {})
    ran = CliRunner().invoke(app, ["reproduce", "all", "--scale", "smoke", "--out", str(tmp_path)])
    assert ran.exit_code == 1
    assert "no run of fig2 has finished" in ran.output
    assert "no run of fig4 has finished" in ran.output
    assert (tmp_path / "fig1-smoke" / "fig1.png").exists()


def test_nothing_finished_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run of fig2 has finished"):
        redraw("fig2", tmp_path, "smoke")
    assert not list(tmp_path.rglob("*.png"))


def test_unknown_figures_are_explained() -> None:
    ran = CliRunner().invoke(app, ["reproduce", "fig5"])
    assert ran.exit_code == 2
    assert "unknown figure 'fig5'" in ran.output
