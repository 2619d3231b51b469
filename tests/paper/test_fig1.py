"""Figure 1: sample sizes over the share of Byzantine clients."""

from pathlib import Path

import pytest

from fedro.paper import FigureRequest, fig1
from paper_cases import redraw, rows_of


def test_figure_1_in_small() -> None:
    runs = fig1.plan_runs(FigureRequest("smoke"))
    rows = fig1.tabulate(runs, Path())
    assert len(rows) == 49
    for row in rows:
        assert row["n_min_exact"] <= row["n_th"]
        assert row["n_min_exact"] <= row["n_recommended"] <= 100
    (axes,) = fig1.draw(runs, rows).axes
    assert list(axes.lines[0].get_ydata()) == [row["n_opt"] for row in rows]


@pytest.mark.slow
def test_figure_1(tmp_path: Path) -> None:
    _, numbers, text = redraw("fig1", tmp_path, "paper")
    rows = {int(row["byzantine"]): row for row in rows_of(numbers)}
    assert (rows[200]["n_th"], rows[200]["n_opt"], rows[200]["n_min_exact"]) == ("57", "186", "37")
    assert (rows[400]["n_th"], rows[400]["n_opt"]) == ("601", "1000")
    assert rows[400]["n_min_exact"] == "291"
    assert "**held**" in text.read_text()
