"""``fedro suspects``: which clients of a run lie, and how many at least."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedro.cli.common import AsJson, app, explains_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedro.server.suspect_report import SuspectReport

UNFLAGGED = 5  # clients that are not suspect, shown for comparison


@app.command("suspects")
@explains_errors
def suspects_command(
    run: Annotated[Path, typer.Argument(help="A run folder, also of a run that is going on.")],
    fdr: Annotated[
        str | None,
        typer.Option(
            help="The rate of false discoveries, like 0.05 or 5%: of the clients flagged for their "
            "direction, at most this share is honest on average. Default: that of the run."
        ),
    ] = None,
    all_clients: Annotated[
        bool, typer.Option("--all", help="Show all clients, not only the suspects and a few more.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show which clients of a run are suspect, why, since when, and how many are Byzantine."""
    from fedro.runs.suspects import suspects

    report = suspects(run, fdr=fdr)
    if as_json:
        print(json.dumps(report.as_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        show(report, None if all_clients else UNFLAGGED)


def show(report: "SuspectReport", unflagged: int | None) -> None:
    """Print the table, and what it means."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    header, *rows = report.table(unflagged)
    if rows:
        gap = 0 if "node" in header else 1  # node ids are long, and 80 columns are enough
        table = Table(*header, box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), header_style="bold")
        for column in table.columns:
            column.no_wrap = True
            if column.header not in ("suspect for", "truth"):
                column.justify = "right"
        for row in rows:
            table.add_row(*row, style="yellow" if row[header.index("suspect for")] else None)
        console.print(table)
    for line in sentences(report):
        console.print(f"• {line}", markup=False)
    hidden = len(report.clients) - len(rows)
    if hidden:
        console.print(f"• {hidden} more clients are not suspect; --all shows them.", markup=False)


def sentences(report: "SuspectReport") -> "Iterator[str]":
    """What the run shows, in sentences."""
    from fedro.common.text import counted, percent

    if report.reason is not None:
        yield f"Too little evidence to judge the directions of updates: {report.reason}."
    flagged = len(report.suspects)
    if flagged or report.enough:
        yield (
            f"{counted(flagged, 'suspect') if flagged else 'Nobody is suspect'} after "
            f"{counted(report.rounds, 'round')} with evidence and {counted(report.looks, 'look')}, "
            f"at a rate of false discoveries of {percent(report.fdr)}."
        )
    if report.enough:
        yield (
            f"slope: how far a client's updates follow what all agree on. Others: "
            f"{report.median:.2f} ± {report.scale:.2f}. z: the distance from that."
        )
    if any("copies" in client.why for client in report.clients):
        yield "copies: how often a client sent the same update as somebody else."
    yield from _how_many(report)
    for group in report.groups:
        names = ", ".join(map(str, group[:12])) + (" …" if len(group) > 12 else "")
        yield (
            f"{counted(len(group), 'client')} sent copies of each other's updates: {names}. At "
            "most one of them is honest."
        )
    if report.byzantine is not None:
        yield _against_the_truth(report)


def _how_many(report: "SuspectReport") -> "Iterator[str]":
    """How many clients are Byzantine, and whether the plan allows for so many."""
    from fedro.common.text import counted, percent

    if not report.at_least:
        return
    text = f"With 95% confidence, at least {counted(report.at_least, 'client')} must be Byzantine"
    if report.planned is None:
        yield f"{text}."
    elif report.at_least <= report.planned:
        yield f"{text}. The run was planned for {report.planned}, so its guarantee holds."
    elif report.outlook is None:
        yield f"{text}, more than the {report.planned} that the run was planned for."
    else:
        needed = report.outlook.tolerated
        remedy = "no tolerance is enough with this sample size" if needed is None else ""
        yield (
            f"{text}, more than the {report.planned} that the run was planned for. With so many, "
            f"all rounds stay within the tolerance with a probability of "
            f"{percent(report.outlook.confidence)}: "
            f"{remedy or f'tolerate {needed} to be safe'}. See `fedro plan`."
        )


def _against_the_truth(report: "SuspectReport") -> str:
    """Precision and recall, in a simulation."""
    byzantine, suspects = set(report.byzantine or ()), set(report.suspects)
    hits = len(byzantine & suspects)
    if not byzantine:
        return f"Known only in a simulation: nobody is Byzantine; {len(suspects)} honest flagged."
    precision = "no suspects" if report.precision is None else f"precision {report.precision:.0%}"
    return (
        f"Known only in a simulation: {hits} of the {len(byzantine)} Byzantine clients that were "
        f"drawn are suspect (recall {report.recall:.0%}), and {len(suspects) - hits} honest ones "
        f"({precision})."
    )
