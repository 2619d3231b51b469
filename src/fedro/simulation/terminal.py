"""The terminal output of a run: its setup, its progress and its results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedro.common.text import counted
from fedro.rules.kappa import kappa_text, lower_bound
from fedro.server import Round, Score, divergence
from fedro.simulation.setup import Setup


def describe(setup: Setup, note: str | None = None) -> Panel:
    """A panel with the setup of a run, a note and the warnings about it."""
    e, n = setup.experiment, setup.federation.clients
    names = (e.dataset, str(setup.attack), setup.model_name or "your model", str(setup.rule))
    dataset, attack, model, rule = map(escape, names)
    lines = [
        f"{n} clients with {dataset}, {e.byzantine} of them Byzantine ({attack})",
        setup.federation.description(),
        f"{model} with {setup.flat.trained:,} parameters, {counted(e.local_steps, 'local step')}",
        f"{counted(e.rounds, 'round')}: sample [bold]{setup.sampled}[/], tolerate "
        f"[bold]{setup.tolerated}[/], aggregate with [bold]{rule}[/]",
        kappa_line(setup),
        f"[dim]engine {setup.engine_kind}, device {setup.device}, {e.precision}, seed {e.seed}[/]",
    ]
    lines += [] if note is None else [escape(note)]
    lines += [f"[bold yellow]{escape(warning)}[/]" for warning in setup.warnings]
    return Panel("\n".join(lines), title="Run", title_align="left", expand=False)


def kappa_line(setup: Setup) -> str:
    """The κ proved for the rule that runs, beside the best possible one."""
    n, b = setup.sampled, setup.tolerated
    return kappa_text(setup.rule.kappa(n, b), lower_bound(n, b))


@contextmanager
def show_progress(
    setup: Setup, before: list[dict[str, Any]], console: Console
) -> Iterator[Callable[[Round], None]]:
    """A progress bar over the rounds; yields the function that updates it after a round.

    Above the bar, it says in which round losses of honest clients became NaN or Inf.

    Args:
        setup: The setup of the run.
        before: The lines of the rounds that are done already.
        console: Where to show the bar.
    """
    columns = (
        TextColumn("round"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        rounds = setup.experiment.rounds
        task = bar.add_task("", total=rounds, completed=len(before), status="")
        last: Score | None = None
        lines = list(before)

        def show(round_: Round) -> None:
            nonlocal last
            lines.append(round_.as_dict())
            notice = divergence(
                lines,
                tolerated=setup.tolerated,
                rule=setup.rule,
                server_lr=setup.experiment.server_lr,
            )
            if notice is not None and console.quiet:
                print_warning(notice)
            elif notice is not None:
                bar.console.print(Text(notice, style="bold yellow"), soft_wrap=True)
            last = round_.score or last
            status = []
            if round_.byzantine is not None:
                status.append(f"Byzantine {len(round_.byzantine)} of {len(round_.sampled)}")
            if round_.train_loss is not None:
                status.append(f"loss {round_.train_loss:.3f}")
            if last is not None and last.accuracy is not None:
                status.append(f"accuracy {last.accuracy:.3f}")
            if last is not None and last.backdoor is not None:
                status.append(f"backdoor {last.backdoor:.3f}")
            bar.update(task, completed=round_.round + 1, status="  ".join(status))

        yield show


def results(summary: dict[str, Any], path: Path | None) -> Group:
    """The scores and events of a finished run, and where it is recorded."""
    table = Table(header_style="bold")
    table.add_column("on the honest clients' test data")
    columns = {"accuracy": "accuracy", "clients": "mean client", "worst": "worst tenth"}
    if summary["final"].get("backdoor") is not None:
        columns["backdoor"] = "backdoor"
    for name in (*columns.values(), "loss"):
        table.add_column(name, justify="right")
    rows = {"final model": summary["final"]}
    if (evaluations := summary["evaluations_in_mean"]) > 1:
        rows[f"mean of the last {evaluations} evaluations"] = summary["mean_of_last"]
    for name, score in rows.items():
        shares = [_percentage(score[key]) for key in columns]
        table.add_row(name, *shares, _number(score["loss"]))
    lines = [
        f"At most {summary['most_byzantine']} of {summary['sampled']} sampled clients were "
        f"Byzantine; {counted(summary['overrun'], 'round')} had more than the "
        f"{summary['tolerated']} tolerated."
    ]
    events = {
        "void": "void rounds",
        "takeovers": "rounds in which the attackers replaced the model",
        "rejected": "rejected replies",
        "missing": "missing replies",
    }
    counts = [f"{summary[key]} {text}" for key, text in events.items() if summary[key]]
    lines += [", ".join(counts) + "."] if counts else []
    lines.append(f"{counted(summary['rounds'], 'round')} took {summary['seconds']:.1f} s.")
    if path is not None:
        lines.append(f"The run folder is {escape(str(path))}")
    return Group(table, "\n".join(lines))


def print_warning(text: str) -> None:
    """Print a warning to stderr, in red on a terminal."""
    Console(stderr=True).print(Text(f"fedro: {text}", style="bold red"), soft_wrap=True)


def _percentage(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}%"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"
