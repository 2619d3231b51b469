"""run.json and config.toml: what makes a run this run, and whether it may go on here."""

import datetime
import importlib.metadata
import json
import platform
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fedro.runs.files import RunFolderError, content
from fedro.runs.strict import parse, to_json
from fedro.common.toml import to_toml

FORMAT = 1
PACKAGES = ("fedro", "numpy", "safetensors", "torch")


def describe(config: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> bytes:
    """The text of run.json; the configuration is in it as TOML, which knows infinities."""
    versions = {"python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in PACKAGES}
    run = {
        "format": FORMAT,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions,
        "fingerprint": fingerprint,
        "config": to_toml(config),
    }
    return to_json(run, indent=2)


def read_run(folder: Path) -> dict[str, Any]:
    """What run.json says, or an error if there is no run or one of another format."""
    data = content(folder / "run.json")
    if data is None:
        raise RunFolderError(f"{folder} holds no run: it has no run.json. Check the path.")
    run = parse(data, folder / "run.json")
    if run.get("format") != FORMAT:
        raise RunFolderError(
            f"{folder} has the format {run.get('format')}, this version of fedro reads {FORMAT}. "
            f"Use the versions that wrote it: {run.get('versions')}"
        )
    return run


def check_same(
    folder: Path,
    config: Mapping[str, Any],
    fingerprint: Mapping[str, Any],
    ignored: Collection[str],
) -> None:
    """Raise unless the run in the folder has this fingerprint and this configuration."""
    run = read_run(folder)
    here = json.loads(to_json(fingerprint))
    if lines := differences(run["fingerprint"], here, "here"):
        raise RunFolderError(
            f"cannot resume {folder}, it would not give the same numbers here:{lines}\n"
            "Resume it where these are the same, or begin another run in another folder."
        )
    begun, given = tomllib.loads(run["config"]), tomllib.loads(to_toml(config))
    if lines := differences(begun, given, "given now", ignored):
        raise RunFolderError(
            f"cannot resume {folder} with another configuration:{lines}\n"
            "Give the values of the run, or begin another run in another folder."
        )
    if lines := differences(begun, _config_file(folder, begun), "in the file", ignored):
        raise RunFolderError(
            f"{folder / 'config.toml'} was changed after the run began:{lines}\n"
            "Delete it, and --resume writes it as it was; or begin another run in another folder."
        )


def _config_file(folder: Path, default: dict[str, Any]) -> dict[str, Any]:
    path = folder / "config.toml"
    data = content(path)
    try:
        return default if data is None else tomllib.loads(data.decode())
    except ValueError as error:
        raise RunFolderError(
            f"{path} is damaged: {error}. Delete it, and --resume writes it as it was."
        ) from None


def differences(
    run: Mapping[str, Any], other: Mapping[str, Any], where: str, ignored: Collection[str] = ()
) -> str:
    """A line for each key that differs: what the run has and what the other; '' if none does."""
    lines = []
    for key in {**run, **other}:
        was = repr(run[key]) if key in run else "not set"
        now = repr(other[key]) if key in other else "not set"
        equal = was == now or (key in run and key in other and run[key] == other[key])
        if not equal and key not in ignored:
            lines.append(f"\n  {key}: {was} in the run, {now} {where}")
    return "".join(lines)
