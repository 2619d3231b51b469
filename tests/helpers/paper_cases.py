"""The paper's figures, as tests ask for them."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedro.paper import FIGURES, FigureRequest, reproduce_figure
from fedro.paper.figure import FigureRuns
from fedro.simulation.experiment import Experiment
from fedro.simulation.recording import run_into


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


def run_here(experiments: Mapping[str, Experiment], folder: Path) -> None:
    """Run the experiments one after the other in this process, which needs no time to start."""
    for name, experiment in experiments.items():
        for _ in run_into(folder / name, experiment):
            pass
