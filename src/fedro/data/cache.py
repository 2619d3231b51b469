"""Decoded arrays kept in a folder, mapped into memory the next time.

The folder is $FEDRO_CACHE, else $XDG_CACHE_HOME/fedro, else ~/.cache/fedro; it can be deleted at
any time. Whatever goes wrong with it, the data is decoded again and training goes on.
"""

import hashlib
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fedro.data.federation import Array
from fedro.data.notes import LOG, say_once

FORMAT = 1  # another number makes every older entry invisible
MANIFEST = "manifest.json"
Arrays = dict[str, Array]


def cached(name: str, files: Sequence[Path], build: Callable[[], Arrays]) -> Arrays:
    """The arrays built from these files: from the cache while the files are as they were."""
    try:
        folder = root() / f"{name}-{_key(name, files)}"
    except (OSError, RuntimeError) as error:  # a file has just gone, or there is no home folder
        _say(error, "the home folder")
        return build()
    if (found := _read(folder)) is not None:
        return found
    LOG.info("decoding %s for the first time: this takes a while, the next time does not", name)
    arrays = build()
    if not _write(folder, arrays):
        return arrays
    return _read(folder) or arrays


def root() -> Path:
    """The folder of the cache."""
    if os.environ.get("FEDRO_CACHE"):
        return Path(os.environ["FEDRO_CACHE"]).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "fedro"


def _key(name: str, files: Sequence[Path]) -> str:
    stats = [(str(file.resolve()), file.stat()) for file in files]
    known = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    return hashlib.blake2b(repr((FORMAT, name, known)).encode(), digest_size=10).hexdigest()


def _read(folder: Path) -> Arrays | None:
    """The arrays in a folder, or None if it is not there, not whole or not what was written."""
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
    """Write all or nothing: readers see the folder only once it is complete."""
    unfinished = folder.with_name(f".{folder.name}-{secrets.token_hex(6)}")
    try:
        unfinished.mkdir(parents=True)
        for name, array in arrays.items():
            with (unfinished / f"{name}.npy").open("xb") as file:
                np.save(file, array, allow_pickle=False)
                os.fsync(file.fileno())
        sums = {f"{name}.npy": _checksum(unfinished / f"{name}.npy") for name in arrays}
        (unfinished / MANIFEST).write_text(json.dumps(sums))
        _put(unfinished, folder)
    except OSError as error:
        _say(error, str(folder.parent))
        return False
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return True


def _put(unfinished: Path, folder: Path) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        if _read(folder) is None:  # what is there is damaged; else another process was faster
            shutil.rmtree(folder, ignore_errors=True)
            unfinished.rename(folder)


def _checksum(path: Path) -> int:
    total = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total = zlib.crc32(block, total)
    return total


def _say(error: Exception, place: str) -> None:
    reason = getattr(error, "strerror", None) or error
    say_once(
        f"no cache of decoded data in {place} ({reason}): going on without it, which is slower; "
        "set FEDRO_CACHE to a folder that can be written and has space"
    )
