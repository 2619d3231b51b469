"""The lock of a run folder: at most one process writes it."""

import fcntl
import os
import weakref
from pathlib import Path

from fedro.runs.errors import InUseError


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
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._file, 20, 0).decode(errors="replace").strip()
            raise InUseError(
                f"{self.path.parent} is in use by process {owner or 'unknown'}: wait until it "
                "ends, stop it, or choose another folder"
            ) from None
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
