"""Carry out many experiments, some at a time, each in a process of ours."""

import os
import selectors
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Self

from fedro.common.checks import count
from fedro.common.subprocesses import Child
from fedro.runs import Lock, RunFolderError, make_folder, read_summary
from fedro.simulation.engines.workers import ENVIRONMENT, cores
from fedro.simulation.experiment import Experiment
from fedro.simulation.recording import differences_to

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
    jobs = min(cores() if jobs is None else count("jobs", jobs, 1), max(1, len(experiments)))
    check_names(experiments)
    check_same_runs(experiments, out)
    make_folder(out)
    lock = Lock(out)
    try:
        todo: deque[str] = deque()
        for name, experiment in experiments.items():
            if (outcome := _finished(out / name)) is None:
                todo.append(name)
            else:
                yield News(name, experiment.rounds, None, outcome)
        if todo:
            yield from _side_by_side(experiments, todo, out, jobs)
    finally:
        lock.release()


def _finished(path: Path) -> Outcome | None:
    """What became of a run that is complete; a damaged one is listed, and others go on."""
    try:
        summary = read_summary(path)
    except RunFolderError as error:
        return Outcome(None, str(error))
    return None if summary is None else Outcome(summary)


def check_names(names: Iterable[str]) -> None:
    """Raise unless each name can be the name of a folder of its own."""
    seen: dict[str, str] = {}
    for name in names:
        if name != Path(name).name or name in ("", ".", "..", "lock", LOG):
            raise ValueError(f"{name!r} cannot be the name of a run's folder: use a plain name")
        if (other := seen.setdefault(name.casefold(), name)) != name:
            raise ValueError(f"{name!r} and {other!r} are one folder on some disks: rename one")


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
    experiments: Mapping[str, Experiment], todo: deque[str], out: Path, jobs: int
) -> Iterator[News]:
    """Some runs at a time, the next one where one has ended."""
    share = max(1, cores() // jobs)  # of the cores, for each run: the same however few are left
    with (out / LOG).open("a") as log, Crew(share, log.fileno()) as crew:
        while todo or crew.doing:
            while todo and len(crew.doing) < jobs:
                name = todo.popleft()
                config = {"workers": share, **experiments[name].as_dict()}
                crew.give(name, {"experiment": config, "path": os.path.abspath(out / name)})
            yield from crew.news()


class Crew:
    """The processes that carry out runs, and what each is doing."""

    def __init__(self, share: int, log: int) -> None:
        threads = {key: str(share) for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        self.environment, self.log = {**ENVIRONMENT, **threads}, log
        self.children: list[Child] = []
        self.doing: dict[Child, str] = {}
        self.selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.dismiss()  # all of them save at the same time
        killed = [child for child in self.children if not child.stop(PATIENCE)]
        self.selector.close()
        for child in killed:
            if child in self.doing:
                warnings.warn(
                    f"{self.doing[child]} did not stop in {PATIENCE:.0f} s and was killed: it goes "
                    "on from its last checkpoint",
                    stacklevel=2,
                )

    def give(self, name: str, order: Mapping[str, Any]) -> None:
        """Let a process begin with a run."""
        idle = (child for child in self.children if child not in self.doing)
        child = next(idle, None) or self._start()
        self.doing[child] = name
        child.send(order)

    def _start(self) -> Child:
        self.children.append(Child("fedro.simulation.sweeps.child", self.environment, log=self.log))
        child = self.children[-1]
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
                yield news

    def _bury(self, child: Child) -> Iterator[News]:
        self.selector.unregister(child.answers)
        self.children.remove(child)
        child.stop(PATIENCE)
        if child not in self.doing:
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
