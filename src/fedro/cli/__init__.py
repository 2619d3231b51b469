"""The commands: ``fedro plan | run | rollback | sweep | report | data | rules | attacks | kappa``
and ``reproduce``.

Heavy things are imported inside the commands, so that ``fedro --help`` is instant.
"""

import os

from fedro.cli import plan, report, reproduce, rules, run, sweep
from fedro.cli.common import app

__all__ = ["app", "main"]

_ORDER = [m.__name__ for m in (plan, run, sweep, report, rules, reproduce)]
app.registered_commands.sort(key=lambda command: _ORDER.index(command.callback.__module__))


# How long torch's threads spin when they have nothing to do: 0.2 ms, not 6, in which they would
# take the cores from the kernels. Torch reads it when it is loaded.
SPIN = "10000"


def main() -> None:
    """The console script."""
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN)
    app()
