"""Find the files of a dataset: at the given path, else in the folder $FEDRO_DATA."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

ListFiles = Callable[[Path, str], list[Path]]  # (folder, part of the file names) -> files
SUBFOLDERS = ("", "data", "plain_text")  # where copies of the hub's repositories keep their files


def find(name: str, path: str | None, list_files: ListFiles, how_to_get: str) -> list[Path]:
    """Find the files of a dataset.

    Args:
        name: The dataset.
        path: A file or folder, as the user gave it.
        list_files: Lists the files in a folder whose names contain a part.
        how_to_get: The end of every error message: how to get the dataset.

    Returns:
        The files; none if no path is given and $FEDRO_DATA does not hold them.

    Raises:
        FileNotFoundError: There are no such files at the path.
    """
    if path is not None:
        given = existing(path, f"{name}(path={path!r})", how_to_get)
        if given.is_file():
            return [given]
        places = [(given / below, part) for part in (name, "") for below in SUBFOLDERS]
        files = _first_listed(places, list_files)
        if not files:
            searched = ", ".join(str(given / below) for below in SUBFOLDERS)
            raise FileNotFoundError(f"{name}: no data in {searched}. {how_to_get}")
        return files
    shared = os.environ.get("FEDRO_DATA")
    if not shared:
        return []
    given = existing(shared, f"FEDRO_DATA={shared}", how_to_get)
    if not given.is_dir():
        raise FileNotFoundError(f"FEDRO_DATA={shared}: must be a folder. {how_to_get}")
    own = [(given / name / below, "") for below in SUBFOLDERS]
    return _first_listed([(given, name), *own], list_files)


def parquet_files(folder: Path, part: str) -> list[Path]:
    """List the parquet files in a folder whose names contain a part, in natural order."""
    return in_natural_order(file for file in folder.glob("*.parquet") if part in file.name.lower())


def in_natural_order(paths: Iterable[Path]) -> list[Path]:
    """Sort by name, with numbers as numbers: client_2 comes before client_10."""
    return sorted(paths, key=_natural_key)


def _natural_key(path: Path) -> list[tuple[int, str]]:
    pieces = re.split("([0-9]+)", path.name)  # every second piece is a number
    return [(int(piece), piece) if i % 2 else (0, piece) for i, piece in enumerate(pieces)]


def existing(path: str, what: str, how_to_get: str) -> Path:
    """Return the path, or raise if nothing is there."""
    given = Path(path).expanduser()
    if not given.exists():
        raise FileNotFoundError(f"{what}: there is no {given.absolute()}. {how_to_get}")
    return given


def _first_listed(places: list[tuple[Path, str]], list_files: ListFiles) -> list[Path]:
    for folder, part in places:
        if folder.is_dir() and (files := list_files(folder, part)):
            return files
    return []
