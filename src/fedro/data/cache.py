"""Decoded arrays kept on the disk, so that they need not be decoded the next time.

The cache folder is $FEDRO_CACHE, else $XDG_CACHE_HOME/fedro, else ~/.cache/fedro. It can be deleted
at any time. If the cache cannot be read or written, the data is decoded again and training goes on.
"""

import functools
import hashlib
import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fedro.common.atomic_files import atomic_path
from fedro.data.federation import Array

LOG = logging.getLogger("fedro.data")
FORMAT = 2  # another number makes every older entry invisible
MANIFEST = "manifest.json"
Arrays = dict[str, Array]


@functools.cache
def warn_once(message: str) -> None:
    """Log a warning, but the same one only once in this process."""
    LOG.warning(message)


def cached(name: str, files: Sequence[Path], build: Callable[[], Arrays]) -> Arrays:
    """Return the arrays that `build` makes of some files, from the cache if possible.

    Args:
        name: The data source; it begins the name of the cache entry.
        files: The files that `build` reads. If one is changed or moved, the entry is not used.
        build: Decodes the files.
    """
    try:
        folder = cache_folder() / f"{name}-{_key(name, files)}"
    except (OSError, RuntimeError) as error:  # a file has just gone, or there is no home folder
        _warn_of_no_cache(error, "the home folder")
        return build()
    if (stored := _read(folder)) is not None:
        return stored
    LOG.info("decoding %s for the first time: this takes a while, the next time does not", name)
    arrays = build()
    if not _write(folder, arrays):
        return arrays
    return _read(folder) or arrays


def cache_folder() -> Path:
    """Return the folder of the cache."""
    if os.environ.get("FEDRO_CACHE"):
        return Path(os.environ["FEDRO_CACHE"]).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "fedro"


def _key(name: str, files: Sequence[Path]) -> str:
    stats = [(str(file.resolve()), file.stat()) for file in files]
    identity = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    return hashlib.blake2b(repr((FORMAT, name, identity)).encode(), digest_size=10).hexdigest()


def _read(folder: Path) -> Arrays | None:
    """Map the arrays of an entry into memory; None if it is missing, incomplete or damaged."""
    try:
        sums = json.loads((folder / MANIFEST).read_text())
        if sums != {name: _checksum(folder / name) for name in sums}:
            raise ValueError("checksums differ")
        return {
            name.removesuffix(".npy"): np.asarray(np.load(folder / name, mmap_mode="r"))
            for name in sums
        }
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        LOG.info("%s is damaged (%s): decoding again", folder, error)
        return None


def _write(folder: Path, arrays: Arrays) -> bool:
    """Write an entry, which other processes see only when it is complete; whether it is there."""
    try:
        with atomic_path(folder, durable=True) as temporary:
            temporary.mkdir()
            for name, array in arrays.items():
                np.save(temporary / f"{name}.npy", array, allow_pickle=False)
            sums = {f"{name}.npy": _checksum(temporary / f"{name}.npy") for name in arrays}
            (temporary / MANIFEST).write_text(json.dumps(sums))
            if _read(folder) is None:  # what is there, if anything, is damaged
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        if _read(folder) is not None:
            return True  # another process was faster
        _warn_of_no_cache(error, str(folder.parent))
        return False
    return True


def _checksum(path: Path) -> int:
    total = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total = zlib.crc32(block, total)
    return total


def _warn_of_no_cache(error: Exception, place: str) -> None:
    reason = getattr(error, "strerror", None) or error
    warn_once(
        f"no cache of decoded data in {place} ({reason}): going on without it, which is slower; "
        "set FEDRO_CACHE to a folder that can be written and has space"
    )
