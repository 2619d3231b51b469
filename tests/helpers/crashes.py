"""Processes that die at a chosen step, and disks that lose what was not synced."""

import contextlib
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KILLED = 77


def child(action: Callable[[], object]) -> int:
    """Start a process of our own; it has 60 seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads
        pid = os.fork()
    if pid:
        return pid
    signal.alarm(60)
    try:
        action()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(pid: int) -> int:
    """How it ended: its exit code, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


STEPS = ("open", "write", "pwrite", "fsync", "replace", "unlink", "truncate", "ftruncate", "mkdir")


def deadly(action: Callable[[], object], step: int, when: str) -> None:
    """Do it, but die before, after or in the middle of the step of that number."""
    left = [step]

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] >= 0:
                return real(*args, **options)
            if when == "torn" and real is write:
                real(args[0], args[1][: len(args[1]) // 2])
            elif when != "before":
                real(*args, **options)
            os._exit(KILLED)

        return call

    write = os.write
    for name in STEPS:
        setattr(os, name, wrap(getattr(os, name)))
    action()


class PowerCutError(BaseException):
    pass


class Disk:
    """What a power cut leaves at worst: synced bytes under synced names."""

    def __init__(self, root: Path, cut: int) -> None:
        self.root, self.left = root, cut
        self.bytes: dict[int, bytes] = {}  # by inode
        self.names: dict[Path, dict[str, int]] = {}  # by folder
        self.held = contextlib.ExitStack()  # open files, so that no inode is used again

    def attach(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in STEPS:
            monkeypatch.setattr(os, name, self.counted(getattr(os, name)))
        monkeypatch.setattr(os, "fsync", self.counted(self.sync))

    def counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise PowerCutError
            return real(*args, **options)

        return call

    def sync(self, file: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        if path.is_dir():
            self.names[path] = {inside.name: inside.stat().st_ino for inside in path.iterdir()}
        else:
            self.bytes[path.stat().st_ino] = path.read_bytes()
            self.held.callback(os.close, os.dup(file))

    def leave(self, folder: Path, target: Path) -> None:
        """Write what is left of the folder to another place."""
        target.mkdir()
        for name, inode in self.names.get(folder, {}).items():
            if (folder / name).is_dir():
                self.leave(folder / name, target / name)
            else:
                (target / name).write_bytes(self.bytes.get(inode, b""))
