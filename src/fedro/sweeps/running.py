"""Carry out many experiments, some at a time, each in a process of ours."""

import os
import selectors
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Self

from fedro.checks import count
from fedro.children import Child
from fedro.engine.workers import ENVIRONMENT, cores
from fedro.experiment import Experiment
from fedro.record import Lock, RunFolderError, make_folder, read
from fedro.recorded import differences_to

PATIENCE = 60.0  # seconds in which a process may save its run, once it is told to stop
LOG = "log.txt"


class Outcome(NamedTuple):
    """What became of a run: its summary, or why there is none."""

    summary: dict[str, Any] | None
    error: str | None = None
    notes: tuple[str, ...] = ()  # what the run said before it started


class News(NamedTuple):
    """How far a run is; with its outcome, if it has ended."""

    name: str
    rounds: int
    accuracy: float | None
    outcome: Outcome | None = None


def sweep(
    experiments: Mapping[str, Experiment], out: Path | str, *, jobs: int | None = None
) -> dict[str, Outcome]:
    """Run all of them into folders below `out`; what became of each, in their order."""
    with closing(carry_out(experiments, Path(out), jobs)) as told:
        ended = {news.name: news.outcome for news in told if news.outcome is not None}
    return {name: ended[name] for name in experiments}


def carry_out(
    experiments: Mapping[str, Experiment], out: Path, jobs: int | None = None
) -> Generator[News, None, None]:
    """Run what is not finished, and tell how it goes.

    However it is stopped, what was begun is saved, and the same call goes on with it.
    """
    jobs = cores() if jobs is None else count("jobs", jobs, 1)
    check_same_runs(experiments, out)
    make_folder(out)
    lock = Lock(out)
    try:
        finished = [name for name in experiments if (out / name / "summary.json").exists()]
        for name in finished:
            yield News(name, experiments[name].rounds, None, Outcome(read(out / name).summary))
        todo = deque(name for name in experiments if name not in finished)
        if todo:
            yield from _side_by_side(experiments, todo, out, min(jobs, len(todo)))
    finally:
        lock.release()


def check_same_runs(experiments: Mapping[str, Experiment], out: Path) -> None:
    """Raise if the folder holds a run of the same name that is another experiment."""
    for name, experiment in experiments.items():
        path = out / name
        if (path / "run.json").exists() and (lines := differences_to(experiment, path)):
            raise RunFolderError(
                f"{path} holds another experiment:{lines}\n"
                "Use another folder for this sweep, or give the values of that one."
            )


def _side_by_side(
    experiments: Mapping[str, Experiment], todo: deque[str], out: Path, size: int
) -> Iterator[News]:
    """Some runs at a time, the next one where one has ended."""
    share = max(1, cores() // size)  # of the cores, for each run
    with (out / LOG).open("a") as log, Crew(share, log.fileno()) as crew:
        while todo or crew.doing:
            while todo and len(crew.doing) < size:
                name = todo.popleft()
                config = {"workers": share, **experiments[name].as_dict()}
                crew.give(name, {"experiment": config, "path": os.path.abspath(out / name)})
            yield from crew.news()


class Crew:
    """The processes that carry out runs, and what each is doing."""

    def __init__(self, share: int, log: int) -> None:
        threads = {key: str(share) for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        self.environment, self.log = {**ENVIRONMENT, **threads}, log
        self.doing: dict[Child, str] = {}
        self.idle: list[Child] = []
        self.selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        children = [*self.doing, *self.idle]
        for child in children:
            child.dismiss()  # all of them save at the same time
        for child in children:
            child.stop(PATIENCE)
        self.selector.close()

    def give(self, name: str, order: Mapping[str, Any]) -> None:
        """Let a process begin with a run."""
        child = self.idle.pop() if self.idle else self._start()
        self.doing[child] = name
        child.send(order)

    def _start(self) -> Child:
        child = Child("fedro.sweeps.child", self.environment, log=self.log)
        self.selector.register(child.answers, selectors.EVENT_READ, child)
        return child

    def news(self) -> Iterator[News]:
        """What the processes tell next; a dead one's run has failed."""
        for key, _ in self.selector.select(timeout=PATIENCE):
            child: Child = key.data
            answers = child.receive()
            if answers is None:
                yield from self._bury(child)
                continue
            for answer in answers:
                news = _news(self.doing[child], answer)
                if news.outcome is not None:
                    del self.doing[child]
                    self.idle.append(child)
                yield news

    def _bury(self, child: Child) -> Iterator[News]:
        self.selector.unregister(child.answers)
        child.stop()
        if child in self.idle:
            self.idle.remove(child)
            return
        code = child.process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        often = ", often for want of memory" if code == -9 else ""
        yield News(self.doing.pop(child), 0, None, Outcome(None, f"its process {how}{often}"))


def _news(name: str, answer: dict[str, Any]) -> News:
    notes = tuple(answer.get("notes", ()))
    if "error" in answer:
        return News(name, answer["rounds"], None, Outcome(None, answer["error"], notes))
    if "summary" in answer:
        return News(
            name, answer["summary"]["rounds"], None, Outcome(answer["summary"], None, notes)
        )
    return News(name, answer["rounds"], answer["accuracy"])
