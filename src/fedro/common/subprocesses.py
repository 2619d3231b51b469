"""Run a module of the package in another process and exchange messages with it.

This is the only place that starts long-lived processes: the worker processes of an engine and the
processes of a sweep are both `JsonSubprocess` objects. Every message is a JSON object on a line of
its own, sent over a pipe::

    # in the parent                                # fedro/some/module.py
    process = JsonSubprocess("fedro.some.module")  def main(messages, send):
    process.send({"number": 2})                        for message in messages:
    process.receive()  # [{"square": 4}]                   send({"square": message["number"]**2})
    process.close_input()  # ends its loop
    process.stop()                                 if __name__ == "__main__":
                                                       serve(main)

The module is started as ``python -m``, so a script or a notebook that uses the package needs no
``if __name__ == "__main__"``. If the parent is killed, its end of the pipe closes, the loop over
the messages ends, and the process ends too.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

Message = dict[str, Any]
READ_SIZE = 1 << 16


class JsonSubprocess:
    """A process that runs a module of the package, and the pipes to it.

    Attributes:
        process: The process, for its id and exit code.
        output: The descriptor from which `receive` reads, for use with `selectors`.
    """

    def __init__(
        self,
        module: str,
        environment: Mapping[str, str] | None = None,
        *,
        inherit: Sequence[int] = (),
        stderr: int | None = None,
    ) -> None:
        """Start the process.

        Args:
            module: The module to run. It must call `serve`.
            environment: Variables to set in addition to those of this process.
            inherit: File descriptors that the process can use under the same numbers.
            stderr: The descriptor to which it prints; by default this process's stderr.
        """
        self._input: int | None
        its_input, self._input = os.pipe()
        self.output, its_output = os.pipe()
        path = os.pathsep.join(filter(None, sys.path))
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(its_input), str(its_output)],
                pass_fds=[its_input, its_output, *inherit],
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                process_group=0,  # Ctrl-C is for this process, which decides what to stop
                env={**os.environ, **(environment or {}), "PYTHONPATH": path},
            )
        except BaseException:
            os.close(self._input)
            os.close(self.output)
            raise
        finally:
            os.close(its_input)
            os.close(its_output)
        self._incomplete_line = b""

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. If the process is dead nothing happens; `receive` will tell."""
        assert self._input is not None
        rest = json.dumps(message).encode() + b"\n"
        with suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._input, rest) :]

    def receive(self) -> list[Message] | None:
        """Wait for output and return the complete messages; None if the process has ended."""
        data = os.read(self.output, READ_SIZE)
        if not data:
            return None
        *lines, self._incomplete_line = (self._incomplete_line + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close_input(self) -> None:
        """Send no more messages; the process ends when it has handled those it has."""
        if self._input is not None:
            os.close(self._input)
            self._input = None

    def stop(self, timeout: float = 0) -> bool:
        """Close the input, wait up to `timeout` seconds, then kill the process.

        Returns:
            Whether the process ended by itself.
        """
        self.close_input()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout)
        ended_by_itself = self.process.poll() is not None
        self.process.kill()
        self.process.wait()
        os.close(self.output)
        return ended_by_itself


def serve(main: Callable[[Iterator[Message], Callable[[Message], None]], None]) -> None:
    """Run ``main(messages, send)`` in a process that `JsonSubprocess` started.

    Args:
        main: Gets an iterator over the parent's messages, which ends when the parent closes the
            input or is killed, and a function that sends a message to the parent.
    """
    reading, writing = map(int, sys.argv[1:3])
    os.dup2(2, 1)  # what a user's model prints goes to stderr
    with os.fdopen(reading) as lines, os.fdopen(writing, "w") as output:

        def send(message: Message) -> None:
            print(json.dumps(message), file=output, flush=True)

        try:
            main(map(json.loads, lines), send)
        except BrokenPipeError:
            os._exit(1)  # the parent is gone
