"""The command line: ``fedro plan``, ``run``, ``sweep``, ``report`` and others, one file for each.

Commands import heavy libraries only when they run, so that ``fedro --help`` is instant.
"""

import os

from fedro.cli import (
    attacks,
    data,
    kappa,
    plan,
    report,
    reproduce,
    rollback,
    rules,
    run,
    suspects,
    sweep,
    watch,
)
from fedro.cli.common import app

__all__ = ["app", "main"]

# The order in `fedro --help` and in the reference.
_COMMANDS = (
    *(plan, run, sweep, watch, suspects, report, rollback),
    *(data, rules, attacks, kappa, reproduce),
)
_ORDER = [module.__name__ for module in _COMMANDS]
app.registered_commands.sort(key=lambda command: _ORDER.index(command.callback.__module__))

# By default idle torch threads spin for 6 ms and keep the cores from the kernels; this makes it
# 0.2 ms. Torch reads the variable when it is loaded.
GOMP_SPINCOUNT = "10000"


def main() -> None:
    """Run the command line; the entry point of the console script."""
    os.environ.setdefault("GOMP_SPINCOUNT", GOMP_SPINCOUNT)
    app()
