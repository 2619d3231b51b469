"""The terminal output of a sweep: progress while it runs, and a table of results at the end."""

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
from fedro.simulation.sweeps.expansion import varied_keys
from fedro.simulation.sweeps.processes import LOG, Outcome, SweepEvent

MAX_WARNINGS = 3
MAX_NOTES = 5


def show_progress(
    experiments: Mapping[str, Experiment], events: Iterable[SweepEvent], console: Console
) -> dict[str, Outcome]:
    """Show the progress of all runs, and return their outcomes."""
    outcomes: dict[str, Outcome] = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        total = sum(experiment.rounds for experiment in experiments.values())
        overall = bar.add_task(counted(len(experiments), "run"), total=total, status="")
        tasks: dict[str, Any] = {}
        completed = dict.fromkeys(experiments, 0)
        for event in events:
            name, rounds = event.name, experiments[event.name].rounds
            completed[name] = event.rounds
            if event.outcome is not None:
                outcomes[name] = event.outcome
                completed[name] = rounds
                if name in tasks:
                    bar.remove_task(tasks.pop(name))
                if not console.is_terminal:
                    console.print(_result_line(name, event.outcome), soft_wrap=True)
            else:
                if name not in tasks:
                    tasks[name] = bar.add_task(escape(name), total=rounds, status="")
                status = "" if event.accuracy is None else f"accuracy {event.accuracy:.3f}"
                bar.update(tasks[name], completed=event.rounds, status=status)
            failed = sum(outcome.error is not None for outcome in outcomes.values())
            status = f"{len(outcomes)} ended" + (f", {failed} failed" if failed else "")
            bar.update(overall, completed=sum(completed.values()), status=status)
    return outcomes


def _result_line(name: str, outcome: Outcome) -> str:
    if outcome.summary is None:
        return f"{escape(name)}: failed, {escape(str(outcome.error))}"
    return f"{escape(name)}: {_percentages([outcome.summary['final']['accuracy']]) or 'finished'}"


def results(
    experiments: Mapping[str, Experiment], outcomes: Mapping[str, Outcome], out: Path
) -> Group:
    """The table of results, failures, warnings, and where the runs are."""
    parts: list[Any] = [results_table(experiments, outcomes)]
    failed: dict[str, list[str]] = defaultdict(list)
    for name, outcome in outcomes.items():
        if outcome.error is not None:
            failed[outcome.error].append(name)
    for error, names in failed.items():
        parts.append(f"[bold red]{counted(len(names), 'run')} failed:[/] {escape(error)}")
        parts += [f"  {escape(name)}" for name in names]
    if failed:
        log = escape(str(out / LOG))
        parts.append(f"Run the same command to try again. The output of the runs is in {log}")
    parts += _notes(outcomes)
    warnings = dict.fromkeys(text for outcome in outcomes.values() for text in outcome.warnings)
    parts += [f"[yellow]{escape(text)}[/]" for text in list(warnings)[:MAX_WARNINGS]]
    if len(warnings) > MAX_WARNINGS:
        parts.append(f"[yellow]and {counted(len(warnings) - MAX_WARNINGS, 'similar warning')}.[/]")
    folder = escape(str(out))
    parts.append(f"The runs are in {folder}. Compare them with: fedro report {folder}")
    return Group(*parts)


def problems_of(outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """Why runs that are complete have come to nothing, by name."""
    return {
        name: outcome.summary["problem"]
        for name, outcome in outcomes.items()
        if outcome.summary is not None and outcome.summary.get("problem") is not None
    }


def _notes(outcomes: Mapping[str, Outcome]) -> list[str]:
    """A line for each run that is complete and has come to nothing."""
    problems = problems_of(outcomes)
    shown = list(problems.items())[:MAX_NOTES]
    lines = [f"[yellow]{escape(name)}:[/] {escape(problem)}" for name, problem in shown]
    if len(problems) > MAX_NOTES:
        more = counted(len(problems) - MAX_NOTES, "run")
        lines.append(f"[yellow]{more} more came to nothing:[/] fedro report lists all of them.")
    return lines


def results_table(experiments: Mapping[str, Experiment], outcomes: Mapping[str, Outcome]) -> Table:
    """One line for all seeds of a setting: mean ± deviation of the final accuracy or loss."""
    keys = [key for key in varied_keys(experiments.values()) if key != "seed"]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for name, experiment in experiments.items():
        config = experiment.as_dict()
        summaries = groups[tuple(str(config.get(key, "")) for key in keys)]
        if (summary := outcomes[name].summary) is not None:
            summaries.append(summary)
    table = Table(header_style="bold")
    for key in keys:
        table.add_column(key, overflow="fold")
    finals = [summary["final"] for summaries in groups.values() for summary in summaries]
    columns: dict[str, str] = {}
    if any(final["accuracy"] is not None for final in finals):
        columns = {"accuracy": "accuracy", "worst": "worst tenth"}
    if any(final["accuracy"] is None for final in finals):
        columns["loss"] = "loss"
    for title in ("runs", *columns.values(), "overruns"):
        table.add_column(title, justify="right")
    for values, summaries in groups.items():
        scores = [
            (_mean if key == "loss" else _percentages)([each["final"][key] for each in summaries])
            for key in columns
        ]
        overruns = sum(summary["overrun"] for summary in summaries)
        table.add_row(*map(escape, values), str(len(summaries)), *scores, str(overruns))
    return table


def _percentages(values: list[float | None]) -> str:
    """The mean of the known values in percent, with the deviation if there are several."""
    known = [100 * value for value in values if value is not None]
    if not known:
        return ""
    return f"{fmean(known):.1f}%" + (f" ± {stdev(known):.1f}" if len(known) > 1 else "")


def _mean(values: list[float | None]) -> str:
    if not values:
        return ""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return f"{fmean(known):.4g}" if len(known) == len(values) else "not finite"
