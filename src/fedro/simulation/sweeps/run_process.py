"""The program of a process that runs experiments of a sweep, which `processes` starts.

If the requests end during a run, because the sweep was stopped or killed, the process saves the run
and ends.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from fedro.common.subprocesses import Message, serve
from fedro.common.user_code import UserCodeError

if TYPE_CHECKING:
    from fedro.runs import RunFolder
    from fedro.simulation.setup import Setup

SECONDS_BETWEEN_REPORTS = 0.2
SECONDS_BETWEEN_LOCK_ATTEMPTS = 0.2
SECONDS_TO_WAIT_FOR_LOCK = 60.0  # a process of an earlier sweep may still be saving the run
Send = Callable[[Message], None]
Requests = SimpleQueue[Message | None]
stopping = threading.Event()  # set when the requests end, since user code may swallow a signal


def main(messages: Iterator[Message], send: Send) -> None:
    """Run one requested experiment after the other, and report on each."""
    sys.path.insert(0, "")  # find the user's own modules in the current folder
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
    requests: Requests = SimpleQueue()
    threading.Thread(target=listen, args=(messages, requests), daemon=True).start()
    with suppress(KeyboardInterrupt):
        while (request := requests.get()) is not None:
            run_request(request, send)


def listen(messages: Iterator[Message], requests: Requests) -> None:
    """Put messages into the queue; when they end, interrupt the current run."""
    for message in messages:
        requests.put(message)
    stopping.set()
    requests.put(None)
    os.kill(os.getpid(), signal.SIGINT)


def run_request(request: Message, send: Send) -> None:
    """Run or resume one experiment; failures are reported, not raised."""
    rounds = 0

    def report(completed: int, accuracy: float | None) -> None:
        nonlocal rounds
        rounds = completed
        send({"rounds": completed, "accuracy": accuracy})

    try:
        answer = train(request["experiment"], Path(request["path"]), report)
    except BrokenPipeError:
        raise
    except Exception as error:
        print(f"--- {request['path']}", file=sys.stderr)
        traceback.print_exc()
        # The messages of these are enough for users.
        explained = isinstance(error, ValueError | OSError | UserCodeError)
        kind = "" if explained else f"{type(error).__name__}: "
        answer = {"error": f"{kind}{error}", "rounds": rounds}
    send(answer)


def train(
    config: dict[str, Any], path: Path, report: Callable[[int, float | None], None]
) -> Message:
    """Run into the folder and return the summary with the warnings of the setup."""
    from fedro.runs import read
    from fedro.simulation.experiment import Experiment
    from fedro.simulation.preparation import prepare
    from fedro.simulation.recording import continued, recorded_run

    experiment = Experiment(**config)
    if (path / "run.json").exists():
        experiment = continued(path, experiment)
    setup = prepare(experiment)
    accuracy, last_report = None, 0.0
    with open_when_free(setup, path) as folder:
        if not folder.finished:
            with closing(recorded_run(setup, folder)) as rounds:
                for round_ in rounds:
                    accuracy = accuracy if round_.score is None else round_.score.accuracy
                    if (now := time.monotonic()) - last_report > SECONDS_BETWEEN_REPORTS:
                        report(round_.round + 1, accuracy)
                        last_report = now
                    if stopping.is_set():
                        raise KeyboardInterrupt
    return {"summary": read(path).summary, "warnings": setup.warnings}


def open_when_free(setup: "Setup", path: Path) -> "RunFolder":
    """Open the run folder, and wait while a process of a killed sweep still holds its lock."""
    from fedro.runs import InUseError
    from fedro.simulation.recording import open_folder

    deadline = time.monotonic() + SECONDS_TO_WAIT_FOR_LOCK
    while True:
        try:
            return open_folder(setup, path, resume=(path / "run.json").exists())
        except InUseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(SECONDS_BETWEEN_LOCK_ATTEMPTS)


if __name__ == "__main__":
    serve(main)
