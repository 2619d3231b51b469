"""A run as its folder tells it, for reports: no lock, also while the run is going on."""

import tomllib
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from fedro.runs.files import RunFolderError, content
from fedro.runs.identity import read_run
from fedro.runs.lines import parse_lines
from fedro.runs.strict import parse


class Recorded(NamedTuple):
    """What a run folder says; there is no summary before the run is complete."""

    config: dict[str, Any]
    fingerprint: dict[str, Any]
    rounds: list[dict[str, Any]]
    summary: dict[str, Any] | None
    finished: bool


def read(path: str | PathLike[str]) -> Recorded:
    """The run in a folder, up to its last whole line."""
    folder = Path(path)
    run = read_run(folder)
    summary = read_summary(folder)  # before the lines: if it is there, they all are
    lines = folder / "rounds.jsonl"
    if summary is not None and not lines.exists():
        raise RunFolderError(f"{lines} is missing: put it back from a copy")
    rounds = parse_lines(lines)
    return Recorded(_config(run), run["fingerprint"], rounds, summary, summary is not None)


def read_config(path: Path) -> dict[str, Any]:
    """The configuration of the run in a folder."""
    return _config(read_run(path))


def read_summary(path: Path) -> dict[str, Any] | None:
    """The summary of the run in a folder, if it is complete."""
    data = content(path / "summary.json")
    return None if data is None else parse(data, path / "summary.json")


def _config(run: dict[str, Any]) -> dict[str, Any]:
    return tomllib.loads(run["config"])
