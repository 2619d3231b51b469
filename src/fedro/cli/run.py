"""``fedro run``: train under attack on this machine."""

from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedro.cli.common import (
    Quiet,
    app,
    explains_errors,
    import_from_current_folder,
    stop_on_sigterm,
)
from fedro.common.user_code import during

if TYPE_CHECKING:
    from rich.console import Console

    from fedro.simulation.setup import Setup

PLAIN: dict[str, Any] = {"markup": False, "highlight": False, "soft_wrap": True}


@app.command()
@explains_errors
def run(
    config: Annotated[
        str | None,
        typer.Argument(
            help="A TOML file, or the name of a built-in experiment. Default: the demo, which "
            "compares FedRo with plain averaging under five attacks."
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a key of the experiment, as in --set rounds=100. May be repeated. With "
            "--resume, it gives the run more rounds.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder. Default: runs/NAME-TIME.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue the run in --out; the result is the same as without the interruption.",
        ),
    ] = False,
    quiet: Quiet = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write a TensorBoard log to the run folder.")
    ] = False,
) -> None:
    """Train with FedRo under attack on this machine, and record the run in a folder.

    The exit code is 1 if a function of your own fails, or if the run has come to nothing: its last
    rounds were void, or the loss is not finite.
    """
    from rich.console import Console

    import_from_current_folder()
    stop_on_sigterm()
    console = Console(quiet=quiet)
    try:
        if config is None and (not resume or holds_demo(out)):
            run_demo(changes or [], out, resume, tensorboard, console)
        else:
            run_one(config, changes or [], out, resume, tensorboard, console)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def holds_demo(out: Path | None) -> bool:
    """Whether a folder holds the runs of the demo, each in a folder of its own."""
    return out is not None and not (out / "run.json").exists() and any(out.glob("*/run.json"))


def run_demo(
    changes: list[str], out: Path | None, resume: bool, tensorboard: bool, console: "Console"
) -> None:
    """Run all experiments of the demo."""
    from fedro.simulation import demo

    if tensorboard:
        raise ValueError(
            "--tensorboard works for a single run: name an experiment, as in `fedro run demo`"
        )
    out = out or default_folder("demo")
    same = "".join(f" --set '{change}'" for change in changes)
    try:
        with during("", f"The runs are saved. {continue_with(out)}{same}"):
            demo.run_demo(out, changes, console, resume)
    except KeyboardInterrupt:
        console.print(f"Stopped and saved. {continue_with(out)}{same}", **PLAIN)
        raise


def run_one(
    config: str | None,
    changes: list[str],
    out: Path | None,
    resume: bool,
    tensorboard: bool,
    console: "Console",
) -> None:
    """Run one experiment into its folder."""
    from fedro.simulation.experiment import ExperimentError, naming_the_changes, read_experiment
    from fedro.simulation.preparation import prepare
    from fedro.simulation.recording import continued, read_changed
    from fedro.simulation.terminal import print_warning

    if resume and out is None:
        raise ExperimentError("--resume needs --out, the folder of the run to continue")
    if config is None:
        assert out is not None
        experiment = read_changed(out, changes)
    else:
        experiment = read_experiment(config, changes)
    if resume:
        assert out is not None
        experiment = continued(out, experiment)
    out = out or default_folder(Path(config or "run").stem)
    with naming_the_changes(changes):
        setup = prepare(experiment)
    for warning in setup.warnings if console.quiet else ():
        print_warning(warning)
    run_and_show(setup, out, resume, tensorboard, console)


def run_and_show(
    setup: "Setup", out: Path, resume: bool, tensorboard: bool, console: "Console"
) -> None:
    """Run into a folder, and show the setup, the progress and the results."""
    from fedro.runs import read
    from fedro.simulation import terminal
    from fedro.simulation.recording import extension_note, open_folder, recorded_run
    from fedro.simulation.tensorboard import tensorboard_log

    console.print(terminal.describe(setup, extension_note(setup, out) if resume else None))
    with open_folder(setup, out, resume) as folder:
        if folder.finished:
            console.print(f"The run in {out} is complete.", **PLAIN)
        else:
            folder.latest()  # goes back to it
            log = tensorboard_log(out / "tensorboard") if tensorboard else None
            try:
                with (
                    during("", f"The run is saved. {continue_with(out)}"),
                    terminal.show_progress(setup, folder.rounds(), console) as show,
                    closing(recorded_run(setup, folder)) as rounds,
                ):
                    for round_ in rounds:
                        show(round_)
                        if log is not None:
                            log(round_)
            except KeyboardInterrupt:
                console.print(f"Stopped and saved. {continue_with(out)}", **PLAIN)
                raise
            except ChildProcessError as error:
                advice = f"The run is saved. {continue_with(out)}"
                raise ChildProcessError(f"{error}\n{advice}") from None
    summary = read(out).summary
    assert summary is not None
    console.print(terminal.results(summary, out))
    if summary.get("problem") is not None:
        terminal.print_warning(summary["problem"])
        raise typer.Exit(1)


def continue_with(out: Path) -> str:
    """How to continue the run in a folder."""
    return f"Continue with: fedro run --resume --out {out}"


def default_folder(name: str) -> Path:
    """The folder of a run without --out: runs/NAME-TIME."""
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
