"""Figures have the data's values, and are written whole or not at all."""

import csv
from pathlib import Path

import pytest

import fedro
from fedro import figures


def test_plan_figure_shows_the_plan() -> None:
    plan = fedro.plan(clients=150, byzantine=15, rounds=500)
    upper, lower = figures.plan_figure(plan).axes
    curve, _, chosen = upper.lines[0], upper.lines[1], upper.lines[2]
    assert (chosen.get_xdata()[0], chosen.get_ydata()[0]) == (27, 1.0)
    values = dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True))
    assert values[15] == 7
    assert values[150] == pytest.approx(0.125)
    assert lower.lines[0].get_ydata()[-1] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "ask",
    [
        {"clients": 1, "byzantine": 0},
        {"clients": 5, "byzantine": 2},
        {"clients": 10**9, "byzantine": 10**8},
    ],
)
def test_plan_figure_of_corner_cases(ask: dict[str, int], tmp_path: Path) -> None:
    plan = fedro.plan(rounds=10, **ask)
    assert figures.save(figures.plan_figure(plan), tmp_path / "plan.svg").exists()


def test_failed_drawing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = figures.plan_figure(fedro.plan(clients=9, byzantine=1, rounds=3))

    def full(path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(figure, "savefig", full)
    with pytest.raises(OSError, match="No space"):
        figures.save(figure, tmp_path / "plan.png")
    assert not list(tmp_path.iterdir())


def test_figure_1_in_small(tmp_path: Path) -> None:
    picture, numbers = figures.fig1(tmp_path, clients=60)
    rows = list(csv.DictReader(numbers.read_text().splitlines()))
    assert picture.exists()
    assert len(rows) == 29
    for row in rows:
        assert int(row["n_min_exact"]) <= int(row["n_th"])
        assert int(row["n_min_exact"]) <= int(row["n_recommended"]) <= 60


@pytest.mark.slow
def test_figure_1(tmp_path: Path) -> None:
    _, numbers = figures.fig1(tmp_path)
    rows = {int(row["byzantine"]): row for row in csv.DictReader(numbers.read_text().splitlines())}
    assert (rows[200]["n_th"], rows[200]["n_opt"], rows[200]["n_min_exact"]) == ("57", "186", "37")
    assert (rows[400]["n_th"], rows[400]["n_opt"], rows[400]["n_min_exact"]) == (
        "601",
        "1000",
        "291",
    )
