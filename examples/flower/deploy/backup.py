#!/usr/bin/env python3
"""Copy the state of a server while it runs: backup.py SERVER DESTINATION

SERVER is the folder where the SuperLink was started. The copy is DESTINATION/TIME, with state.db
and runs/. It holds the seed of unfinished runs, so keep it as secret as the original. Keys and
certificates are not in it.
"""

import shutil
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path


def copy_run(run: Path, to: Path) -> None:
    """Copy checkpoints first, then rounds.jsonl, which must not be older than they are."""
    later = [path for path in run.iterdir() if path.name not in ("checkpoints", "lock")]
    to.mkdir(parents=True)
    if (run / "checkpoints").exists():
        copy_checkpoints(run / "checkpoints", to / "checkpoints")
    for path in later:
        if path.is_file():
            shutil.copy2(path, to / path.name)


def copy_checkpoints(folder: Path, to: Path) -> None:
    """Copy complete checkpoints; the server deletes old ones meanwhile."""
    to.mkdir()
    for path in sorted(folder.glob("*.safetensors"), reverse=True):
        try:
            shutil.copy2(path, to / path.name)
        except FileNotFoundError:
            continue


def copy_database(database: Path, to: Path) -> None:
    """Copy the SuperLink's database as of one moment, with what is still in its journal."""
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)


def backup(server: Path, destination: Path) -> Path:
    """Runs first, then the database: it then knows every node that a run knows."""
    copy = destination / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    unfinished = copy.with_name(f"{copy.name}.unfinished")
    unfinished.mkdir(parents=True, mode=0o700)
    for run_json in sorted(server.glob("runs/**/run.json")):
        run = run_json.parent
        copy_run(run, unfinished / run.relative_to(server))
    copy_database(server / "state.db", unfinished / "state.db")
    return unfinished.rename(copy)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if not (Path(sys.argv[1]) / "state.db").exists():
        sys.exit(f"{sys.argv[1]} has no state.db: name the folder where the SuperLink was started")
    print(backup(Path(sys.argv[1]), Path(sys.argv[2])))
