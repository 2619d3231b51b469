"""``fedro rollback``: return a run to an earlier checkpoint."""

from pathlib import Path
from typing import Annotated

import typer

from fedro.cli.common import app, explains_errors


@app.command()
@explains_errors
def rollback(
    folder: Annotated[Path, typer.Argument(help="The run folder.")],
    round: Annotated[
        int, typer.Argument(help="How many rounds to keep; there must be a checkpoint after them.")
    ],
) -> None:
    """Return a run to an earlier checkpoint. Later files are renamed, not deleted."""
    from fedro.runs import read_config, roll_back

    for path in roll_back(folder, round):
        print(f"renamed to {path}")
    deployed = read_config(folder)["dataset"] == "flower"
    remedy = "start the server app again, with resume=True"
    if not deployed:
        remedy = f"fedro run --resume --out {folder}"
    print(
        f"The run in {folder} is back to its state after {round} rounds. Continue it with: {remedy}"
    )
