"""``fedro report``: run folders as one page, pictures and tables."""

from pathlib import Path
from typing import Annotated

import typer

from fedro.cli.common import app, explains_errors


@app.command()
@explains_errors
def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or folders that hold run folders.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    png: Annotated[
        Path | None, typer.Option(help="Also draw the charts as pictures into this folder.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write runs, rounds and clients as CSV, here.")
    ] = None,
) -> None:
    """One page on what runs came to: accuracy, worst cases, bad clients, time, how to repeat it."""
    from fedro.report import write_report

    written = write_report(runs, out, png=png, csv=csv)
    for note in written.study.notes:
        typer.echo(f"fedro: {note}", err=True)
    for path in written.files:
        print(path)
