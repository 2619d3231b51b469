"""Errors of a run folder that say what is saved and how to go on."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from fedro.common.atomic_files import NewRootFolderError

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


class InUseError(RunFolderError):
    """A run folder that another process is writing."""


class DamagedError(RunFolderError):
    """A checkpoint that is not as it was written."""


@contextlib.contextmanager
def explained(path: Path, saved: str, next_step: str) -> Iterator[None]:
    """Turn an error of the system into one that says what is saved and what to do.

    Args:
        path: The file or folder that is written in the block.
        saved: What is safe on the disk, as the start of a sentence.
        next_step: What the user does once the cause is repaired.
    """
    try:
        yield
    except RunFolderError:
        raise
    except NewRootFolderError as error:
        raise RunFolderError(str(error)) from error
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "repair that")
        reason = error.strerror or str(error)
        message = f"cannot write {path}: {reason}. {saved}; {remedy}, and {next_step}."
        raise RunFolderError(message) from error


def read_bytes(path: Path) -> bytes | None:
    """Read a file; None if it does not exist."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from error
