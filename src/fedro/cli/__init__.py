"""The commands: ``fedro plan | run | sweep | report | data | rules | attacks | kappa | reproduce``.

Heavy things are imported inside the commands, so that ``fedro --help`` is instant.
"""

from fedro.cli import planning, reporting, reproducing, rules, running, sweeping
from fedro.cli.common import app

__all__ = ["app", "main"]

_COMMANDS = (planning, running, sweeping, reporting, rules, reproducing)  # these add themselves


def main() -> None:
    """The console script."""
    app()
