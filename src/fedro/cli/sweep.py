"""``fedro sweep``: run many experiments from one file."""

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedro.cli.common import (
    Quiet,
    app,
    explains_errors,
    import_from_current_folder,
    stop_on_sigterm,
)

if TYPE_CHECKING:
    from rich.console import Console

    from fedro.simulation.experiment import Experiment
    from fedro.simulation.sweeps import Outcome


@app.command()
@explains_errors
def sweep(
    config: Annotated[str, typer.Argument(help="A TOML file in which any key may hold a list.")],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a key, as in --set rounds=100 or --set 'seed=[0, 1, 2]'. May be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the sweep. Default: runs/NAME.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Number of runs at the same time. Default: the number of cores."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run every combination of the lists in a file.

    Finished runs are skipped and interrupted ones resumed, so the same command can be repeated.
    """
    from rich.console import Console

    from fedro.simulation.sweeps import read_sweep
    from fedro.simulation.sweeps.terminal import problems_of

    import_from_current_folder()
    out = out or Path("runs") / Path(config).stem
    experiments = read_sweep(config, changes or [])
    outcomes = run_and_show(experiments, out, jobs, Console(quiet=quiet))
    failed = {name: each.error for name, each in outcomes.items() if each.error is not None}
    for name, error in {**problems_of(outcomes), **failed}.items() if quiet else ():
        print(f"fedro: {name}: {error}", file=sys.stderr)
    if failed:
        print(f"fedro: {len(failed)} of {len(outcomes)} runs failed", file=sys.stderr)
        raise typer.Exit(1)


def run_and_show(
    experiments: "Mapping[str, Experiment]", out: Path, jobs: int | None, console: "Console"
) -> "dict[str, Outcome]":
    """Run a sweep, and show its progress and its results; Ctrl-C saves all runs."""
    from fedro.simulation.sweeps import run_sweep, terminal

    stop_on_sigterm()
    try:
        with closing(run_sweep(experiments, out, jobs)) as events:
            outcomes = terminal.show_progress(experiments, events, console)
    except KeyboardInterrupt:
        console.print("Stopped and saved. Run the same command again to continue.")
        raise typer.Exit(130) from None
    console.print(terminal.results(experiments, outcomes, out), soft_wrap=True, highlight=False)
    return outcomes
