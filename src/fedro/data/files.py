"""Where a dataset's files are: the path that was given, else the folder $FEDRO_DATA."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

Look = Callable[[Path, str], list[Path]]  # (folder, part of the file names) -> files
BELOW = ("", "data", "plain_text")  # where copies of the hub's repositories keep their files


def find(name: str, path: str | None, look: Look, how: str) -> list[Path]:
    """The dataset's files; none if no path is given and $FEDRO_DATA does not hold them."""
    if path is not None:
        given = existing(path, f"{name}(path={path!r})", how)
        if given.is_file():
            return [given]
        places = [(given / below, part) for part in (name, "") for below in BELOW]
        found = _first(places, look)
        if not found:
            looked = ", ".join(str(given / below) for below in BELOW)
            raise FileNotFoundError(f"{name}: no data in {looked}. {how}")
        return found
    shared = os.environ.get("FEDRO_DATA")
    if not shared:
        return []
    given = existing(shared, f"FEDRO_DATA={shared}", how)
    if not given.is_dir():
        raise FileNotFoundError(f"FEDRO_DATA={shared}: must be a folder. {how}")
    return _first([(given, name), *((given / name / below, "") for below in BELOW)], look)


def parquet(folder: Path, part: str) -> list[Path]:
    """The parquet files of a folder with a part of the name, in order."""
    return in_order(file for file in folder.glob("*.parquet") if part in file.name.lower())


def in_order(paths: Iterable[Path]) -> list[Path]:
    """By name, with numbers as numbers: client_2 comes before client_10."""
    return sorted(paths, key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    pieces = re.split("([0-9]+)", path.name)  # every second piece is a number
    return [(int(piece), piece) if i % 2 else (0, piece) for i, piece in enumerate(pieces)]


def existing(path: str, what: str, how: str) -> Path:
    """A path that exists."""
    given = Path(path).expanduser()
    if not given.exists():
        raise FileNotFoundError(f"{what}: there is no {given.absolute()}. {how}")
    return given


def _first(places: list[tuple[Path, str]], look: Look) -> list[Path]:
    for folder, part in places:
        if folder.is_dir() and (found := look(folder, part)):
            return found
    return []
