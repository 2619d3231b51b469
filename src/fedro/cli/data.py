"""``fedro data``: show how a data set is divided among clients."""

from pathlib import Path
from typing import Annotated

import typer

from fedro.cli.common import app, explains_errors, import_from_current_folder


@app.command()
@explains_errors
def data(
    dataset: Annotated[
        str,
        typer.Argument(help="The data set, such as digits, femnist(path='…') or my_module:make."),
    ],
    clients: Annotated[
        int | None,
        typer.Option(help="Number of clients (n). Default: one for each owner of the data, or 10."),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="How to divide the data: owner, iid, dirichlet(alpha=…) or shards(per_client=…). "
            "Default: depends on the data set."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the partition and the test split.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw each client's examples and classes into this file."),
    ] = None,
) -> None:
    """Show how many examples and which classes each client has."""
    from fedro.data import make_federation

    import_from_current_folder()
    federation = make_federation(dataset, clients=clients, partition=partition, seed=seed)
    print(federation.summary())
    if plot is not None:
        from fedro.common.figures import save
        from fedro.data.figure import federation_figure

        save(federation_figure(federation), plot)
        print(f"Figure written to {plot}")
