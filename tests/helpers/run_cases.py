"""Helpers for tests of runs: results that must be equal, and the command line in this process."""

import signal
import sys

from typer.testing import CliRunner

from fedro.cli import app


def outcome(path):
    """What must be equal however often a run was stopped: everything but the times."""
    from safetensors.torch import load_file

    from fedro.runs import read

    rounds = [{k: v for k, v in line.items() if k != "seconds"} for line in read(path).rounds]
    model = {k: v.tolist() for k, v in load_file(path / "model.safetensors").items()}
    summary = {k: v for k, v in read(path).summary.items() if k != "seconds"}
    return rounds, model, summary


def invoke(*arguments):
    """Run a command in this process, without a trace of it in sys.path and signal handlers.

    An exception that the command does not explain is raised, as a traceback would show it.
    """
    path, handler = list(sys.path), signal.getsignal(signal.SIGTERM)
    try:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    finally:
        sys.path[:] = path
        signal.signal(signal.SIGTERM, handler)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
