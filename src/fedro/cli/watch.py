"""``fedro watch``: show a run while it is going on."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedro.cli.common import app, explains_errors, stop_on_sigterm

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from fedro.runs.progress import RunStatus

MIN_EVERY = 0.1


@app.command()
@explains_errors
def watch(
    run: Annotated[Path, typer.Argument(help="A run folder, or the folder of a sweep.")],
    every: Annotated[float, typer.Option(help="Seconds between two looks at the folder.")] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Show the run as it is now, and exit.")
    ] = False,
) -> None:
    """Show a run of a simulation or a deployment in the terminal, until it is complete.

    Waits for a run that has not begun, and for one that has stopped, because it may be resumed.
    Ctrl-C ends the view. The exit code is 1 if the run has failed and, with --once, if it has
    stopped.
    """
    from rich.console import Console

    if every < MIN_EVERY:
        raise ValueError(f"every={every:g}: must be at least {MIN_EVERY:g} seconds")
    stop_on_sigterm()
    view = View(run)
    try:
        show = show_once if once else show_live
        bad = show(view, Console(highlight=False), every)
    except KeyboardInterrupt:
        return
    for status in bad:
        done = f"{status.progress.rounds} of {status.rounds} rounds"
        typer.echo(f"fedro: {status.path}: {status.problem or f'stopped after {done}'}", err=True)
    if bad:
        raise typer.Exit(1)


class View:
    """A run folder, or a folder that contains run folders."""

    def __init__(self, path: Path) -> None:
        from fedro.runs.progress import RunFollower

        self.path = path
        self._followers = {path: RunFollower(path)}
        self.statuses: list[RunStatus] = []

    def update(self) -> None:
        """Read what is new."""
        from fedro.runs.progress import RunFollower, find_runs

        one = self._followers[self.path]
        if one.begun:
            self.statuses = [one.status()]
            return
        for path in find_runs(self.path):
            self._followers.setdefault(path, RunFollower(path))
        begun = [each for each in self._followers.values() if each.begun]
        self.statuses = [follower.status() for follower in begun]

    @property
    def complete(self) -> bool:
        """Whether every run is complete, and no sweep goes on that might begin more."""
        from fedro.runs.lock import holder

        ended = all(status.state in ("finished", "failed") for status in self.statuses)
        return bool(self.statuses) and ended and (self._is_one or holder(self.path) is None)

    @property
    def _is_one(self) -> bool:
        """Whether the folder holds a run, and not folders of runs."""
        return [status.path for status in self.statuses] == [self.path]

    def frame(self, width: int) -> "RenderableType":
        """What a terminal of this width shows."""
        from rich.text import Text

        from fedro.runs.terminal import run_frame, sweep_frame

        if not self.statuses:
            return Text(f"Waiting for a run in {self.path.absolute()} (Ctrl-C ends this).")
        if self._is_one:
            return run_frame(self.statuses[0], width)
        return sweep_frame(self.statuses, self.path, width)

    def bad(self, *states: str) -> "list[RunStatus]":
        """The runs in these states."""
        return [status for status in self.statuses if status.state in states]


def show_once(view: View, console: "Console", every: float) -> "list[RunStatus]":
    """Print one frame; returns the runs that have failed or stopped."""
    view.update()
    if not view.statuses:
        raise ValueError(
            f"{view.path} holds no run: it has no run.json, and no folder in it has one. Check the "
            "path; without --once, fedro watch waits for a run to begin"
        )
    console.print(view.frame(console.width))
    return view.bad("failed", "stopped")


def show_live(view: View, console: "Console", every: float) -> "list[RunStatus]":
    """Show frames until the run is complete; returns the runs that have failed."""
    if console.is_terminal:
        _show_frames(view, console, every)
    else:
        _print_lines(view, console.print, every)
    return view.bad("failed")


def _show_frames(view: View, console: "Console", every: float) -> None:
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        for _ in _until_complete(view, every):
            live.update(view.frame(console.width), refresh=True)


def _print_lines(view: View, print_line: Callable[..., None], every: float) -> None:
    """Print a line for every run that has changed, for a log."""
    from fedro.runs.terminal import one_line

    before: dict[Path, str] = {}
    for _ in _until_complete(view, every):
        for status in view.statuses:
            line = f"{status.path}: {one_line(status)}"
            if before.get(status.path) != line:
                print_line(line, soft_wrap=True, markup=False)
                before[status.path] = line


def _until_complete(view: View, every: float) -> Iterator[None]:
    while True:
        view.update()
        yield
        if view.complete:
            return
        time.sleep(every)
