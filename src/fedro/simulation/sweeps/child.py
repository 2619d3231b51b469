"""A process that carries out one run after the other. Started by `running`, not by hand.

When the orders end in the middle of a run, because the sweep was stopped or killed, the run is
saved and the process ends.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TextIO

from fedro.common.subprocesses import serve

if TYPE_CHECKING:
    from fedro.runs import RunFolder
    from fedro.simulation.setup import Setup

SELDOM = 0.2  # seconds between two words about the same run
PATIENCE = 60.0  # seconds in which a run's folder may be freed by the process that had it before
Tell = Callable[[dict[str, Any]], None]
stopping = threading.Event()  # no more orders: a signal alone can get lost in somebody's code


def main(orders: TextIO, answers: TextIO) -> None:
    """Carry out the runs that are ordered, and tell of each."""
    sys.path.insert(0, "")  # your own models, data and attacks are found from where you are
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    inbox: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
    threading.Thread(target=listen, args=(orders, inbox), daemon=True).start()

    def tell(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    with suppress(KeyboardInterrupt):
        while (order := inbox.get()) is not None:
            carry_out(order, tell)


def listen(orders: TextIO, inbox: "SimpleQueue[dict[str, Any] | None]") -> None:
    """Hand on the orders; when they end, interrupt the run that is going on."""
    for line in orders:
        inbox.put(json.loads(line))
    stopping.set()
    inbox.put(None)
    os.kill(os.getpid(), signal.SIGINT)


def carry_out(order: dict[str, Any], tell: Tell) -> None:
    """One run, from where it ended; a failure is told, not raised."""
    rounds = 0

    def progress(done: int, accuracy: float | None) -> None:
        nonlocal rounds
        rounds = done
        tell({"rounds": done, "accuracy": accuracy})

    try:
        answer = train(order["experiment"], Path(order["path"]), progress)
    except BrokenPipeError:
        raise
    except Exception as error:
        print(f"--- {order['path']}", file=sys.stderr)
        traceback.print_exc()
        mendable = isinstance(error, ValueError | OSError)  # by the user, from the message alone
        kind = "" if mendable else f"{type(error).__name__}: "
        answer = {"error": f"{kind}{error}", "rounds": rounds}
    tell(answer)


def train(
    config: dict[str, Any], path: Path, progress: Callable[[int, float | None], None]
) -> dict[str, Any]:
    """Run into the folder; the summary, and what was to be said before."""
    from fedro.runs import read
    from fedro.simulation.experiment import Experiment
    from fedro.simulation.recording import recorded_run
    from fedro.simulation.setup import prepare

    setup = prepare(Experiment(**config))
    accuracy, told = None, 0.0
    with open_patiently(setup, path) as folder:
        if not folder.finished:
            with closing(recorded_run(setup, folder)) as rounds:
                for done in rounds:
                    accuracy = accuracy if done.score is None else done.score.accuracy
                    if (now := time.monotonic()) - told > SELDOM:
                        progress(done.round + 1, accuracy)
                        told = now
                    if stopping.is_set():
                        raise KeyboardInterrupt
    return {"summary": read(path).summary, "notes": setup.notes}


def open_patiently(setup: "Setup", path: Path) -> "RunFolder":
    """The run's folder, once the process that was killed with an earlier sweep has let it go."""
    from fedro.runs import InUseError
    from fedro.simulation.recording import open_folder

    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return open_folder(setup, path, resume=(path / "run.json").exists())
        except InUseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(SELDOM)


if __name__ == "__main__":
    serve(main)
