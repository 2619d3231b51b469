"""What a person sees of a sweep: one display while it goes on, and a table in the end."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedro.common.text import counted
from fedro.simulation.experiment import Experiment
from fedro.simulation.sweeps.grid import varied
from fedro.simulation.sweeps.running import LOG, News, Outcome

SHOWN_NOTES = 3


def follow(
    experiments: Mapping[str, Experiment], told: Iterable[News], console: Console
) -> dict[str, Outcome]:
    """Show how a sweep goes, and return what became of each run."""
    outcomes: dict[str, Outcome] = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[news]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        total = sum(experiment.rounds for experiment in experiments.values())
        whole = bar.add_task(counted(len(experiments), "run"), total=total, news="")
        running: dict[str, Any] = {}
        done = dict.fromkeys(experiments, 0)
        for news in told:
            done[news.name] = news.rounds
            if news.outcome is not None:
                outcomes[news.name] = news.outcome
                done[news.name] = experiments[news.name].rounds
                if news.name in running:
                    bar.remove_task(running.pop(news.name))
                if not console.is_terminal:
                    console.print(_line(news.name, news.outcome), soft_wrap=True)
            else:
                if news.name not in running:
                    rounds = experiments[news.name].rounds
                    running[news.name] = bar.add_task(escape(news.name), total=rounds, news="")
                words = "" if news.accuracy is None else f"accuracy {news.accuracy:.3f}"
                bar.update(running[news.name], completed=news.rounds, news=words)
            failed = sum(outcome.error is not None for outcome in outcomes.values())
            words = f"{len(outcomes)} ended" + (f", {failed} failed" if failed else "")
            bar.update(whole, completed=sum(done.values()), news=words)
    return outcomes


def _line(name: str, outcome: Outcome) -> str:
    if outcome.summary is None:
        return f"{escape(name)}: failed, {escape(str(outcome.error))}"
    return f"{escape(name)}: {_share([outcome.summary['final']['accuracy']]) or 'done'}"


def closing(
    experiments: Mapping[str, Experiment], outcomes: Mapping[str, Outcome], out: Path
) -> Group:
    """What a sweep came to: runs that differ only in their seed are one line."""
    parts: list[Any] = [table(experiments, outcomes)]
    failed: dict[str, list[str]] = defaultdict(list)
    for name, found in outcomes.items():
        if found.error is not None:
            failed[found.error].append(name)
    for error, names in failed.items():
        parts.append(f"[bold red]{counted(len(names), 'run')} failed:[/] {escape(error)}")
        parts += [f"  {escape(name)}" for name in names]
    if failed:
        parts.append(
            f"The same command tries again. What was printed is in {escape(str(out / LOG))}"
        )
    notes = list(dict.fromkeys(note for found in outcomes.values() for note in found.notes))
    parts += [f"[yellow]{escape(note)}[/]" for note in notes[:SHOWN_NOTES]]
    if more := notes[SHOWN_NOTES:]:
        parts.append(f"[yellow]{len(more)} more like that.[/]")
    parts.append(f"The runs are in {escape(str(out))}; fedro report {escape(str(out))} shows them.")
    return Group(*parts)


def table(experiments: Mapping[str, Experiment], outcomes: Mapping[str, Outcome]) -> Table:
    """Final accuracies, mean ± deviation over the seeds; losses where there is no accuracy."""
    keys = [key for key in varied(experiments.values()) if key != "seed"]
    rows: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for name, experiment in experiments.items():
        config = experiment.as_dict()
        found = rows[tuple(str(config.get(key, "")) for key in keys)]
        if (summary := outcomes[name].summary) is not None:
            found.append(summary)
    made = Table(header_style="bold")
    for key in keys:
        made.add_column(key, overflow="fold")
    finals = [summary["final"] for found in rows.values() for summary in found]
    columns: dict[str, str] = {}
    if any(final["accuracy"] is not None for final in finals):
        columns = {"accuracy": "accuracy", "worst": "worst tenth"}
    if any(final["accuracy"] is None for final in finals):
        columns["loss"] = "loss"
    for title in ("runs", *columns.values(), "unsafe rounds"):
        made.add_column(title, justify="right")
    for values, found in rows.items():
        scores = [
            (_number if key == "loss" else _share)([summary["final"][key] for summary in found])
            for key in columns
        ]
        unsafe = sum(summary["overrun"] for summary in found)
        made.add_row(*map(escape, values), str(len(found)), *scores, str(unsafe))
    return made


def _share(values: list[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    if not known:
        return ""
    return f"{fmean(known):.1f}%" + (f" ± {stdev(known):.1f}" if len(known) > 1 else "")


def _number(values: list[float | None]) -> str:
    if not values:
        return ""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return f"{fmean(known):.4g}" if len(known) == len(values) else "not finite"
