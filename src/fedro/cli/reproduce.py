"""``fedro reproduce``: the paper's figures."""

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
    figure: Annotated[str, typer.Argument(help="fig1, fig2, fig3, fig4, or all.")],
    scale: Annotated[
        str,
        typer.Option(
            help="smoke (seconds, digits), desk (about an hour on two cores, real data) or paper."
        ),
    ] = "desk",
    out: Annotated[Path, typer.Option(help="Folder for pictures, numbers and runs.")] = Path("out"),
    reading: Annotated[
        str, typer.Option(help="table or text: which to follow where the paper's conflict.")
    ] = "table",
    only: Annotated[
        str | None, typer.Option(help="One data set of several: femnist or cifar10.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="So many seeds, instead of the scale's.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at a time. Left out: as many as cores.")
    ] = None,
) -> None:
    """Make a figure of the paper again: PNG, CSV, and whether its claim held.

    What is finished is kept: the same command goes on where it was cut.
    """
    from rich.console import Console

    from fedro.cli.sweep import shown
    from fedro.paper import FIGURES, Ask, make

    ask = Ask(scale, reading, only, seeds)
    console, failures = Console(), 0

    def carry(experiments: "Mapping[str, Experiment]", folder: Path) -> None:
        nonlocal failures
        outcomes = shown(experiments, folder, jobs, console)
        failures += sum(outcome.error is not None for outcome in outcomes.values())

    for name in FIGURES if figure == "all" else (figure,):
        each = FIGURES[name]
        console.print(f"[bold]{name}[/], {each.title} ({scale})")
        try:
            *_, text = made = make(name, each, ask, out, carry)
        except ValueError as error:
            if figure != "all":
                raise
            print(f"fedro: {name}: {error}", file=sys.stderr)
            failures += 1
            continue
        console.print(text.read_text(), markup=False, highlight=False, soft_wrap=True)
        console.print(*made, sep="\n", markup=False, highlight=False, soft_wrap=True)
    if failures:
        print("fedro: not all of it could be made, see above", file=sys.stderr)
        raise typer.Exit(1)
