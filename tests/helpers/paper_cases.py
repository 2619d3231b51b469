"""The paper's figures, as tests ask for them."""

import csv
from pathlib import Path
from typing import Any

from fedro.paper import FIGURES, FigureRequest, reproduce_figure
from fedro.paper.figure import FigureRuns


def planned(figure: str, *request: Any, **options: Any) -> FigureRuns:
    """The runs of a figure for a `FigureRequest` with these values."""
    return FIGURES[figure].plan_runs(FigureRequest(*request, **options))


def redraw(figure: str, out: Path, *request: Any, **options: Any) -> list[Path]:
    """Write a figure from the runs that are there, without running any."""
    return reproduce_figure(
        figure, FIGURES[figure], FigureRequest(*request, **options), out, lambda *_: None
    )


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(path.read_text().splitlines()))
