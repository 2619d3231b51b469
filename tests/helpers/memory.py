"""Peak memory of an action."""

import threading
from collections.abc import Callable
from pathlib import Path


def anonymous() -> int:
    """Bytes of anonymous memory; pages of mapped files do not count."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon in /proc/self/status")


def peak_extra(action: Callable[[], object]) -> int:
    """The most anonymous memory beyond that of before, looked at a thousand times a second."""
    before, seen, done = anonymous(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            seen.append(anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = action()
    seen.append(anonymous())
    done.set()
    watcher.join()
    del result
    return max(seen) - before
