"""``fedro reproduce``: the paper's figures."""

from pathlib import Path
from typing import Annotated

import typer

from fedro.cli.common import app, explains_errors


@app.command()
@explains_errors
def reproduce(
    figure: Annotated[str, typer.Argument(help="Which figure of the paper: fig1.")],
    out: Annotated[Path, typer.Option(help="Folder for the picture and the numbers.")] = Path(
        "out"
    ),
) -> None:
    """Draw a figure of the paper again, and what goes beyond it: PNG and CSV."""
    from fedro.figures import FIGURES

    for path in FIGURES[figure](out):
        print(path)
