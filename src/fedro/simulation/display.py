"""What a person sees of a run: progress while it goes on, and what it came to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedro.common.text import counted
from fedro.server import Round, Score
from fedro.simulation.setup import Setup


def describe(setup: Setup) -> Panel:
    """What is about to be run, and what should be known before."""
    e, n = setup.experiment, setup.federation.clients
    names = (e.dataset, str(setup.attack), setup.model_name or "your model", str(setup.rule))
    dataset, attack, model, rule = map(escape, names)
    lines = [
        f"{n} clients with {dataset}, {e.byzantine} of them bad ({attack}); "
        f"{model} with {setup.flat.trained:,} parameters",
        f"{e.rounds} rounds: sample [bold]{setup.sampled}[/], tolerate [bold]{setup.tolerated}[/], "
        f"aggregate with [bold]{rule}[/], {counted(e.local_steps, 'local step')}",
        f"[dim]engine {setup.engine_kind}, device {setup.device}, {e.precision}, seed {e.seed}[/]",
    ]
    lines += [f"[bold yellow]{escape(note)}[/]" for note in setup.notes]
    return Panel("\n".join(lines), title="Run", title_align="left", expand=False)


@contextmanager
def progress(setup: Setup, start: int, console: Console) -> Iterator[Any]:
    """A bar over the rounds, with what is known of the model."""
    columns = (
        TextColumn("round"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[news]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        rounds = setup.experiment.rounds
        task = bar.add_task("", total=rounds, completed=start, news="")
        last: Score | None = None

        def show(round_: Round) -> None:
            nonlocal last
            last = round_.score or last
            news = []
            if round_.byzantine is not None:
                news.append(f"bad {len(round_.byzantine)} of {len(round_.sampled)}")
            if round_.train_loss is not None:
                news.append(f"loss {round_.train_loss:.3f}")
            if last is not None and last.accuracy is not None:
                news.append(f"accuracy {last.accuracy:.3f}")
            if last is not None and last.backdoor is not None:
                news.append(f"backdoor {last.backdoor:.3f}")
            bar.update(task, completed=round_.round + 1, news="  ".join(news))

        yield show


def closing(summary: dict[str, Any], path: Path | None) -> Group:
    """What a run came to."""
    table = Table(header_style="bold")
    table.add_column("on the honest clients' test data")
    columns = {"accuracy": "accuracy", "clients": "mean client", "worst": "worst tenth"}
    if summary["final"].get("backdoor") is not None:
        columns["backdoor"] = "backdoor"
    for name in (*columns.values(), "loss"):
        table.add_column(name, justify="right")
    rows = {"final model": summary["final"]}
    if (several := summary["evaluations_in_mean"]) > 1:
        rows[f"mean of the last {several} evaluations"] = summary["mean_of_last"]
    for name, score in rows.items():
        shares = [_share(score[key]) for key in columns]
        table.add_row(name, *shares, _number(score["loss"]))
    lines = [
        f"Bad clients sampled in a round: at most {summary['most_byzantine']} of "
        f"{summary['sampled']}; more than the {summary['tolerated']} tolerated in "
        f"{counted(summary['overrun'], 'round')}."
    ]
    events = {
        "void": "rounds were void",
        "takeovers": "rounds ended with the model in the bad clients' hands",
        "rejected": "replies were rejected",
        "missing": "replies were missing",
    }
    lines += [f"{summary[key]} {text}." for key, text in events.items() if summary[key]]
    lines.append(f"{summary['rounds']} rounds in {summary['seconds']:.1f} s.")
    if path is not None:
        lines.append(f"Model, rounds and configuration are in {escape(str(path))}")
    return Group(table, "\n".join(lines))


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}%"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"
