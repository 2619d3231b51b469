"""``fedro run``: train under attack, and see what became of it."""

import signal
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedro.cli.common import app, explains_errors

if TYPE_CHECKING:
    from rich.console import Console

    from fedro.simulation.setup import Setup


PLAIN: dict[str, Any] = {"markup": False, "highlight": False, "soft_wrap": True}


@app.command()
@explains_errors
def run(
    config: Annotated[
        str | None,
        typer.Argument(help="A TOML file, or a built-in experiment. Left out: the demo, whole."),
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key: --set rounds=100.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder. Left out: runs/NAME-TIME.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, to the same bits.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also log for TensorBoard, in the run's folder.")
    ] = False,
) -> None:
    """Train with FedRo under attack, on this machine."""
    import sys

    from rich.console import Console

    sys.path.insert(0, "")  # your own models, data and attacks are found from where you are
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill stops like Ctrl-C
    console = Console(quiet=quiet)
    try:
        if config is None and (not resume or is_demo(out)):
            whole_demo(changes or [], out, resume, tensorboard, console)
        else:
            one_run(config, changes or [], out, resume, tensorboard, console)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def is_demo(out: Path | None) -> bool:
    """Whether a folder holds the demo's runs, each in a folder of its own."""
    return out is not None and not (out / "run.json").exists() and any(out.glob("*/run.json"))


def whole_demo(
    changes: list[str], out: Path | None, resume: bool, tensorboard: bool, console: "Console"
) -> None:
    """All runs of the demo."""
    from fedro.simulation.demo import demo

    if tensorboard:
        raise ValueError("--tensorboard is for one run: name an experiment, like fedro run demo")
    out = out or fresh_folder("demo")
    try:
        demo(out, changes, console, resume)
    except KeyboardInterrupt:
        same = "".join(f" --set '{change}'" for change in changes)
        typer.echo(f"Stopped and saved: fedro run --resume --out {out}{same} goes on.")
        raise


def one_run(
    config: str | None,
    changes: list[str],
    out: Path | None,
    resume: bool,
    tensorboard: bool,
    console: "Console",
) -> None:
    """Run one experiment into its folder."""
    from fedro.simulation.experiment import ExperimentError, read_experiment
    from fedro.simulation.recording import experiment_of
    from fedro.simulation.setup import prepare

    if resume and out is None:
        raise ExperimentError("--resume needs --out, the folder of the run to go on with")
    if config is None:
        assert out is not None
        experiment = experiment_of(out)
        if changes:
            raise ExperimentError("a run is resumed as it was begun: leave --set out")
    else:
        experiment = read_experiment(config, changes)
    out = out or fresh_folder(Path(config or "run").stem)
    setup = prepare(experiment)
    for note in setup.notes if console.quiet else ():
        typer.echo(f"fedro: {note}", err=True)
    follow(setup, out, resume, tensorboard, console)


def follow(
    setup: "Setup", out: Path, resume: bool, tensorboard: bool, console: "Console"
) -> dict[str, Any]:
    """Run into a folder, showing how it goes; the summary."""
    from fedro.runs import read
    from fedro.simulation import display
    from fedro.simulation.recording import open_folder, recorded_run
    from fedro.simulation.tensorboard import tensorboard_log

    console.print(display.describe(setup))
    with open_folder(setup, out, resume) as folder:
        if folder.finished:
            console.print(f"The run in {out} is complete.", **PLAIN)
        else:
            last = folder.latest()
            start = 0 if last is None else last.round
            log = tensorboard_log(out / "tensorboard") if tensorboard else None
            try:
                with (
                    display.progress(setup, start, console) as show,
                    closing(recorded_run(setup, folder)) as rounds,
                ):
                    for done in rounds:
                        show(done)
                        if log is not None:
                            log(done)
            except KeyboardInterrupt:
                console.print(
                    f"Stopped and saved: fedro run --resume --out {out} goes on.", **PLAIN
                )
                raise
            except ChildProcessError as error:
                advice = f"The run is saved: fedro run --resume --out {out} goes on."
                raise ChildProcessError(f"{error}\n{advice}") from None
    summary = read(out).summary
    assert summary is not None
    console.print(display.closing(summary, out))
    return summary


def fresh_folder(name: str) -> Path:
    """runs/NAME-TIME."""
    from datetime import datetime

    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


@app.command()
@explains_errors
def rollback(
    folder: Annotated[Path, typer.Argument(help="The run's folder.")],
    round: Annotated[int, typer.Argument(help="How many rounds to keep: that of a checkpoint.")],
) -> None:
    """Have a run go on from an earlier checkpoint; what came after it is set aside."""
    from fedro.runs import roll_back

    for path in roll_back(folder, round):
        print(f"set aside: {path}")
    print(f"The run in {folder} is as it was after {round} rounds; resume it to go on from there.")


@app.command()
@explains_errors
def data(
    dataset: Annotated[str, typer.Argument(help="Like digits, femnist(path='…'), my_module:make.")],
    clients: Annotated[int | None, typer.Option(help="How many clients (n).")] = None,
    partition: Annotated[
        str | None, typer.Option(help="owner, iid, dirichlet(alpha=…) or shards(per_client=…).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the split and the partition.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="Draw samples and classes of the clients into this file.")
    ] = None,
) -> None:
    """What the clients hold: samples and classes of each."""
    import sys

    from fedro.data import make_federation

    sys.path.insert(0, "")
    federation = make_federation(dataset, clients=clients, partition=partition, seed=seed)
    print(federation.summary())
    if plot is not None:
        from fedro.common.figures import save
        from fedro.data.picture import picture

        save(picture(federation), plot)
        print(f"Drawn to {plot}")
