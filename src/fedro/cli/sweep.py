"""``fedro sweep``: many experiments from one file."""

import signal
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedro.cli.common import app, explains_errors

if TYPE_CHECKING:
    from rich.console import Console

    from fedro.simulation.experiment import Experiment
    from fedro.simulation.sweeps import Outcome


@app.command()
@explains_errors
def sweep(
    config: Annotated[str, typer.Argument(help="A TOML file; keys with lists are varied.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key: --set rounds=100, --set 'seed=[0, 1, 2]'."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The sweep's folder. Left out: runs/NAME.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at a time. Left out: as many as cores.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
) -> None:
    """Run every combination; what is finished is kept, what was cut goes on."""
    from rich.console import Console

    from fedro.simulation.sweeps import read_sweep

    sys.path.insert(0, "")  # your own models, data and attacks are found from where you are
    out = out or Path("runs") / Path(config).stem
    experiments = read_sweep(config, changes or [])
    outcomes = shown(experiments, out, jobs, Console(quiet=quiet))
    failed = {name: each.error for name, each in outcomes.items() if each.error is not None}
    for name, error in failed.items() if quiet else ():
        print(f"fedro: {name}: {error}", file=sys.stderr)
    if failed:
        print(f"fedro: {len(failed)} of {len(outcomes)} runs failed", file=sys.stderr)
        raise typer.Exit(1)


def shown(
    experiments: "Mapping[str, Experiment]", out: Path, jobs: int | None, console: "Console"
) -> "dict[str, Outcome]":
    """Carry out and show; Ctrl-C saves what was begun."""
    from fedro.simulation.sweeps import carry_out, display

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill stops like Ctrl-C
    try:
        with closing(carry_out(experiments, out, jobs)) as told:
            outcomes = display.follow(experiments, told, console)
    except KeyboardInterrupt:
        console.print("Stopped and saved: the same command goes on.")
        raise typer.Exit(130) from None
    console.print(display.closing(experiments, outcomes, out), soft_wrap=True, highlight=False)
    return outcomes
