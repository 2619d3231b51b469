"""Processes of our own that are spoken to in lines of JSON, over two pipes.

They are subprocesses of an entry point of ours, so a script or a notebook that starts them needs no
``if __name__ == "__main__"``. They end when their orders end, also because the process that gave
them was killed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TextIO


class Child:
    """One process, and the pipes to it."""

    def __init__(
        self,
        module: str,
        environment: Mapping[str, str],
        *,
        keep: Sequence[int] = (),
        log: int | None = None,
    ) -> None:
        """Run a module that calls `serve`; it inherits the descriptors in `keep`."""
        self._orders: int | None
        orders, self._orders = os.pipe()
        self.answers, answers = os.pipe()
        path = os.pathsep.join(filter(None, sys.path))
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(orders), str(answers)],
                pass_fds=[orders, answers, *keep],
                stdin=subprocess.DEVNULL,
                stderr=log,
                process_group=0,  # Ctrl-C is for the process that gives orders
                env={**os.environ, **environment, "PYTHONPATH": path},
            )
        except BaseException:
            os.close(self._orders)
            os.close(self.answers)
            raise
        finally:
            os.close(orders)
            os.close(answers)
        self._read = b""

    def send(self, message: Mapping[str, Any]) -> None:
        """Give an order; that a child is dead is noticed when its answers end."""
        assert self._orders is not None
        rest = json.dumps(message).encode() + b"\n"
        with suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._orders, rest) :]

    def receive(self) -> list[dict[str, Any]] | None:
        """The answers that have arrived, or None when the child is dead."""
        data = os.read(self.answers, 1 << 16)
        if not data:
            return None
        *lines, self._read = (self._read + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def dismiss(self) -> None:
        """No more orders: the child ends when it has done what it does then."""
        if self._orders is not None:
            os.close(self._orders)
            self._orders = None

    def stop(self, patience: float = 0) -> bool:
        """End the process after so many seconds in which it may end itself; whether it did."""
        self.dismiss()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        by_itself = self.process.poll() is not None
        self.process.kill()
        self.process.wait()
        os.close(self.answers)
        return by_itself


def serve(main: Callable[[TextIO, TextIO], None]) -> None:
    """In the child: main(orders, answers), from the pipes that `Child` has opened."""
    reading, writing = map(int, sys.argv[1:3])
    os.dup2(2, 1)  # what a user's model prints must not be taken for an answer
    with os.fdopen(reading) as orders, os.fdopen(writing, "w") as answers:
        try:
            main(orders, answers)
        except BrokenPipeError:
            os._exit(1)  # nobody listens any more
