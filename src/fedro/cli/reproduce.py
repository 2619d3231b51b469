"""``fedro reproduce``: reproduce the figures of the paper."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedro.cli.common import app, explains_errors

if TYPE_CHECKING:
    from fedro.simulation.experiment import Experiment


@app.command()
@explains_errors
def reproduce(
    figure: Annotated[str, typer.Argument(help="The figure: fig1, fig2, fig3, fig4 or all.")],
    scale: Annotated[
        str,
        typer.Option(
            help="How large the runs are: smoke (seconds, on digits), desk (about an hour on two "
            "cores, on real data) or paper (as in the paper)."
        ),
    ] = "desk",
    out: Annotated[
        Path, typer.Option(help="The folder for pictures, numbers and run folders.")
    ] = Path("out"),
    reading: Annotated[
        str,
        typer.Option(help="Whether to follow the paper's table or its text where they conflict."),
    ] = "table",
    only: Annotated[
        str | None,
        typer.Option(
            help="Use only this data set of the figure: femnist or cifar10. Default: all of them."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="The number of seeds. Default: depends on the figure and scale."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Number of runs at the same time. Default: the number of cores."),
    ] = None,
) -> None:
    """Reproduce a figure of the paper: the picture, its numbers, and a verdict on each claim.

    Finished runs are skipped and interrupted ones resumed, so the same command can be repeated.
    """
    from rich.console import Console

    from fedro.cli.sweep import run_and_show
    from fedro.paper import FIGURES, FigureRequest, reproduce_figure

    request = FigureRequest(scale, reading, only, seeds)
    console, failures = Console(), 0

    def run_all(experiments: "Mapping[str, Experiment]", folder: Path) -> None:
        nonlocal failures
        outcomes = run_and_show(experiments, folder, jobs, console)
        failures += sum(outcome.error is not None for outcome in outcomes.values())

    for name in FIGURES if figure == "all" else (figure,):
        paper_figure = FIGURES[name]
        console.print(f"[bold]{name}[/], {paper_figure.title} ({scale})")
        try:
            *_, page = files = reproduce_figure(name, paper_figure, request, out, run_all)
        except ValueError as error:
            if figure != "all":
                raise
            print(f"fedro: {name}: {error}", file=sys.stderr)
            failures += 1
            continue
        console.print(page.read_text(), markup=False, highlight=False, soft_wrap=True)
        console.print(*files, sep="\n", markup=False, highlight=False, soft_wrap=True)
    if failures:
        print("fedro: some runs or figures failed, see above", file=sys.stderr)
        raise typer.Exit(1)
