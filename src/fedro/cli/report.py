"""``fedro report``: compare runs on a page, in figures and in tables."""

from pathlib import Path
from typing import Annotated

import typer

from fedro.cli.common import app, explains_errors


@app.command()
@explains_errors
def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or folders that contain run folders.")
    ],
    out: Annotated[Path, typer.Option(help="The HTML page to write.")] = Path("report.html"),
    png: Annotated[
        Path | None, typer.Option(help="Also write the charts as PNG files to this folder.")
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="Also write runs, rounds and clients as CSV files to this folder."),
    ] = None,
) -> None:
    """Write an HTML page about runs: accuracy, worst cases, Byzantine clients, time and more."""
    from fedro.report import write_report

    written = write_report(runs, out, png=png, csv=csv)
    for note in written.notes:
        typer.echo(f"fedro: {note}", err=True)
    for path in written.files:
        print(path)
