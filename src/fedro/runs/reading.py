"""Read a run folder without taking its lock, and compare its run with a configuration."""

import datetime
import importlib.metadata
import json
import platform
import tomllib
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from fedro.common.text import to_toml
from fedro.runs.errors import RunFolderError, read_bytes
from fedro.runs.json_lines import parse_json, parse_lines, to_json

FORMAT = 1
PACKAGES = ("fedro", "numpy", "safetensors", "torch")


class RecordedRun(NamedTuple):
    """The content of a run folder.

    Attributes:
        config: The configuration, as in config.toml.
        fingerprint: The versions, hardware and settings that decide the bits of the results.
        rounds: One dict for each line of rounds.jsonl.
        summary: The content of summary.json; None until the run is complete.
        finished: Whether the run is complete.
    """

    config: dict[str, Any]
    fingerprint: dict[str, Any]
    rounds: list[dict[str, Any]]
    summary: dict[str, Any] | None
    finished: bool


def read(path: str | PathLike[str]) -> RecordedRun:
    """Read the run in a folder, up to its last complete line, also while it is going on.

    Raises:
        RunFolderError: The folder holds no run, or a file is damaged or missing.
    """
    folder = Path(path)
    run = read_run_json(folder)
    summary = read_summary(folder)  # before the lines: if it is there, they all are
    lines = folder / "rounds.jsonl"
    if summary is not None and not lines.exists():
        raise RunFolderError(f"{lines} is missing: put it back from a copy")
    rounds = parse_lines(lines)
    config = tomllib.loads(run["config"])
    return RecordedRun(config, run["fingerprint"], rounds, summary, summary is not None)


def read_config(path: Path) -> dict[str, Any]:
    """Read the configuration of the run in a folder."""
    return tomllib.loads(read_run_json(path)["config"])


def read_given_keys(path: Path) -> dict[str, Any]:
    """Read the values that were given for keys of which the run uses other values."""
    return tomllib.loads(read_run_json(path).get("given", ""))


def read_summary(path: Path) -> dict[str, Any] | None:
    """Read the summary of the run in a folder; None until the run is complete."""
    data = read_bytes(path / "summary.json")
    return None if data is None else parse_json(data, path / "summary.json")


def make_run_json(
    config: Mapping[str, Any], fingerprint: Mapping[str, Any], given: Mapping[str, Any]
) -> bytes:
    """Compose run.json; configurations are in it as TOML, which can hold infinities."""
    versions = {"python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in PACKAGES}
    run = {
        "format": FORMAT,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions,
        "fingerprint": fingerprint,
        "config": to_toml(config),
    }
    if given:
        run["given"] = to_toml(given)
    return to_json(run, indent=2)


def extended_run_json(run: Mapping[str, Any], changes: Mapping[str, Any]) -> bytes:
    """Compose the run.json of a run whose configuration is changed, with a record of that."""
    config = tomllib.loads(run["config"])
    before = {key: config.get(key) for key in changes}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record = {"time": now, "before": to_toml(before)}
    return to_json(
        {
            **run,
            "config": to_toml({**config, **changes}),
            "extensions": [*run.get("extensions", []), record],
        },
        indent=2,
    )


def read_run_json(folder: Path) -> dict[str, Any]:
    """Read run.json, or raise if there is no run or one of another format."""
    data = read_bytes(folder / "run.json")
    if data is None:
        raise RunFolderError(f"{folder} holds no run: it has no run.json. Check the path.")
    run = parse_json(data, folder / "run.json")
    if run.get("format") != FORMAT:
        raise RunFolderError(
            f"{folder} has the format {run.get('format')}, this version of fedro reads {FORMAT}. "
            f"Use the versions that wrote it: {run.get('versions')}"
        )
    return run


def check_same_run(
    folder: Path,
    config: Mapping[str, Any],
    fingerprint: Mapping[str, Any],
    may_differ: Collection[str],
) -> None:
    """Raise unless the run in the folder has this fingerprint and this configuration."""
    run = read_run_json(folder)
    here = json.loads(to_json(fingerprint))
    if lines := differences(run["fingerprint"], here, "here"):
        raise RunFolderError(
            f"cannot resume {folder}, it would not give the same numbers here:{lines}\n"
            "Resume it where these are the same, or begin another run in another folder."
        )
    begun, given = tomllib.loads(run["config"]), tomllib.loads(to_toml(config))
    if lines := differences(begun, given, "given now", may_differ):
        raise other_configuration(folder, lines)
    if lines := differences(begun, _config_file(folder, begun), "in the file", may_differ):
        raise RunFolderError(
            f"{folder / 'config.toml'} was changed after the run began:{lines}\n"
            "Delete it, and --resume writes it as it was; or begin another run in another folder."
        )


def other_configuration(folder: Path, lines: str) -> RunFolderError:
    """The error about a run that cannot be resumed because of these differences."""
    return RunFolderError(
        f"cannot resume {folder} with another configuration:{lines}\n"
        "Give the values of the run, or begin another run in another folder."
    )


def _config_file(folder: Path, default: dict[str, Any]) -> dict[str, Any]:
    path = folder / "config.toml"
    data = read_bytes(path)
    try:
        return default if data is None else tomllib.loads(data.decode())
    except ValueError as error:
        raise RunFolderError(
            f"{path} is damaged: {error}. Delete it, and --resume writes it as it was."
        ) from None


def differences(
    run: Mapping[str, Any], other: Mapping[str, Any], where: str, ignored: Collection[str] = ()
) -> str:
    """Describe the keys in which two configurations differ, a line for each; '' if none does.

    >>> differences({"rounds": 4}, {"rounds": 5}, "given now")
    '\\n  rounds: 4 in the run, 5 given now'
    """
    lines = []
    for key in {**run, **other}:
        was = repr(run[key]) if key in run else "not set"
        now = repr(other[key]) if key in other else "not set"
        equal = was == now or (key in run and key in other and run[key] == other[key])
        if not equal and key not in ignored:
            lines.append(f"\n  {key}: {was} in the run, {now} {where}")
    return "".join(lines)
