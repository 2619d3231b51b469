"""The lock of a run folder: at most one process writes it."""

import fcntl
import os
import time
import weakref
from pathlib import Path

from fedro.runs.errors import InUseError, RunFolderError

ATTEMPTS, PAUSE = 10, 0.02  # seconds; `holder` keeps the lock for a few microseconds


class Lock:
    """The lock of a folder, taken on construction; the system frees it when the process ends.

    Raises:
        InUseError: Another process holds the lock.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        self._close = weakref.finalize(self, os.close, self._file)
        try:
            self._take()
        except BaseException:
            self.release()
            raise

    def _take(self) -> None:
        for left in reversed(range(ATTEMPTS)):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not left:
                    raise InUseError(
                        f"{self.path.parent} is in use by process {_owner(self._file)}: wait until "
                        "it ends, stop it, or choose another folder"
                    ) from None
            time.sleep(PAUSE)
        os.pwrite(self._file, f"{os.getpid():<10}\n".encode(), 0)  # one length: no space is needed

    def release(self) -> None:
        """Free the lock; a second call does nothing."""
        self._close()

    @property
    def held(self) -> bool:
        """Whether this object still holds the lock."""
        return self._close.alive

    def in_place(self) -> bool:
        """Whether the file is still the folder's lock: nothing was moved, deleted or replaced."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._file))
        except OSError:
            return False


def holder(folder: Path) -> str | None:
    """Return the id of the process that holds the lock of a folder, or None if no process does.

    The process may run on another machine or in another container. Its id is "unknown" for a moment
    after it has taken the lock.

    Raises:
        RunFolderError: The lock cannot be read.
    """
    try:
        file = os.open(folder / "lock", os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RunFolderError(f"cannot read {folder / 'lock'}: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # others who ask have it, too
    except BlockingIOError:
        return _owner(file)
    finally:
        os.close(file)
    return None


def _owner(file: int) -> str:
    return os.pread(file, 20, 0).decode(errors="replace").strip() or "unknown"
