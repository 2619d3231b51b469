"""Files that a crash cannot leave half-written."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

TEMPORARY = ".tmp"
REMEDIES = {
    errno.ENOSPC: "make space on the disk",
    errno.EDQUOT: "make space in your quota",
    errno.EFBIG: "raise the limit on the size of a file (ulimit -f)",
    errno.EROFS: "make the folder writable",
    errno.EACCES: "make the folder writable",
    errno.EPERM: "make the folder writable",
    errno.EEXIST: "choose another folder",
    errno.ENOTDIR: "choose another folder",
    errno.ENOENT: "put the folder back, it was moved or deleted",
}


class RunFolderError(OSError):
    """A run folder that cannot be used or written; the message says why and what to do."""


@contextlib.contextmanager
def explained(path: Path, saved: str, onward: str) -> Iterator[None]:
    """Turn an error of the system into one that says what is saved and how to go on."""
    try:
        yield
    except RunFolderError:
        raise
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "repair that")
        reason = error.strerror or str(error)
        message = f"cannot write {path}: {reason}. {saved}; {remedy}, and {onward}."
        raise RunFolderError(message) from error


def write_whole(path: Path, data: bytes) -> None:
    """Put a file in place all at once: now and after a crash there is the old one or the new."""
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            write_all(file, data)
            os.fsync(file)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def write_all(file: int, data: bytes) -> None:
    """Write every byte, or raise."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def content(path: Path) -> bytes | None:
    """The bytes of a file; None if there is no such file."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from error


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """A file by its number, closed in the end."""
    file = os.open(path, flags, 0o666)
    try:
        yield file
    finally:
        os.close(file)


def make_folder(path: Path) -> None:
    """The folder and those above it, so that a power cut does not take them away again."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk, where the file system knows how to."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as folder:
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
