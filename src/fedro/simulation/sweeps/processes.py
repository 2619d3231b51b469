"""Run the experiments of a sweep, several at a time, each in a process of its own."""

import os
import selectors
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Self

from fedro.common.atomic_files import make_folder_durably
from fedro.common.checks import count
from fedro.common.subprocesses import JsonSubprocess, Message
from fedro.runs import Lock, RunFolderError, read_summary
from fedro.simulation.engines.workers import ENVIRONMENT, available_cores
from fedro.simulation.experiment import Experiment
from fedro.simulation.recording import differences_to

SECONDS_TO_SAVE = 60.0  # after a request to stop, before a process is killed
LOG = "log.txt"


class Outcome(NamedTuple):
    """The result of a run in a sweep: its summary, or the reason why it failed."""

    summary: dict[str, Any] | None  # as in summary.json; None if the run failed
    error: str | None = None  # why the run failed
    warnings: tuple[str, ...] = ()  # those that the run gave before it started


class SweepEvent(NamedTuple):
    """Progress of one run of a sweep. The last event of each run has its outcome."""

    name: str
    rounds: int  # completed ones
    accuracy: float | None  # of the last evaluation
    outcome: Outcome | None = None


def sweep(
    experiments: Mapping[str, Experiment], out: Path | str, *, jobs: int | None = None
) -> dict[str, Outcome]:
    """Run several experiments, each into a folder below `out`.

    Finished runs are skipped and interrupted ones resumed, so a call that was stopped can simply be
    repeated. A run that fails does not stop the others.

    Args:
        experiments: The experiments by the names of their run folders, as `read_sweep` returns
            them.
        out: The folder of the sweep. It is created if it does not exist.
        jobs: How many runs to execute at the same time. The default is the number of cores.

    Returns:
        The outcome of each run, by name: `outcome.summary` is what summary.json holds, and
        `outcome.error` says why a run failed.

    Raises:
        ValueError: A name cannot be the name of a folder, or `jobs` is less than 1.
        RunFolderError: A folder holds the run of another experiment, or another process uses the
            folder of the sweep.

    Example:
        >>> import fedro
        >>> experiments = fedro.read_sweep("sweep.toml")  # doctest: +SKIP
        >>> outcomes = fedro.sweep(experiments, "runs/sweep", jobs=2)  # doctest: +SKIP
        >>> outcomes["rule=mean,seed=0"].summary["final"]["accuracy"]  # doctest: +SKIP
        0.87
    """
    with closing(run_sweep(experiments, Path(out), jobs)) as events:
        outcomes = {event.name: event.outcome for event in events if event.outcome is not None}
    return {name: outcomes[name] for name in experiments}


def run_sweep(
    experiments: Mapping[str, Experiment], out: Path, jobs: int | None = None
) -> Generator[SweepEvent, None, None]:
    """Run all unfinished experiments and yield events about their progress.

    However the sweep is stopped, its runs are saved, and the same call resumes them.
    """
    jobs = available_cores() if jobs is None else count("jobs", jobs, 1)
    jobs = min(jobs, max(1, len(experiments)))
    check_names(experiments)
    check_same_experiments(experiments, out)
    make_folder_durably(out)
    lock = Lock(out)
    try:
        unfinished: deque[str] = deque()
        for name, experiment in experiments.items():
            if (outcome := _existing_outcome(out / name)) is None:
                unfinished.append(name)
            else:
                yield SweepEvent(name, experiment.rounds, None, outcome)
        if unfinished:
            yield from _run_unfinished(experiments, unfinished, out, jobs)
    finally:
        lock.release()


def _existing_outcome(path: Path) -> Outcome | None:
    """The outcome of a finished or damaged run folder; None if the run is still to be done."""
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
            raise ValueError(f"{name!r} cannot be the name of a run folder: use a plain name")
        if (other := seen.setdefault(name.casefold(), name)) != name:
            raise ValueError(
                f"{name!r} and {other!r} are the same folder on some disks: rename one of them"
            )


def check_same_experiments(experiments: Mapping[str, Experiment], out: Path) -> None:
    """Raise if a folder of the same name holds a run of another experiment."""
    for name, experiment in experiments.items():
        path = out / name
        if (path / "run.json").exists() and (lines := differences_to(experiment, path)):
            raise RunFolderError(
                f"{path} holds another experiment:{lines}\n"
                "Use another folder for this sweep, or give the values of that experiment."
            )


def _run_unfinished(
    experiments: Mapping[str, Experiment], unfinished: deque[str], out: Path, jobs: int
) -> Iterator[SweepEvent]:
    """Keep `jobs` processes busy until all runs have ended."""
    # Each run gets the same share of the cores however few runs are left, as its fingerprint needs.
    cores_per_run = max(1, available_cores() // jobs)
    with (out / LOG).open("a") as log, ProcessPool(cores_per_run, log.fileno()) as pool:
        while unfinished or pool.current:
            while unfinished and len(pool.current) < jobs:
                name = unfinished.popleft()
                config = {"workers": cores_per_run, **experiments[name].as_dict()}
                pool.start_run(name, {"experiment": config, "path": os.path.abspath(out / name)})
            yield from pool.wait_for_events()


class ProcessPool:
    """The processes that run experiments, and the name of the current run of each busy one."""

    def __init__(self, threads: int, log: int) -> None:
        limits = {key: str(threads) for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        self.environment, self.log = {**ENVIRONMENT, **limits}, log
        self.processes: list[JsonSubprocess] = []
        self.current: dict[JsonSubprocess, str] = {}
        self.selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.close_input()  # all of them save their runs at the same time
        killed = [process for process in self.processes if not process.stop(SECONDS_TO_SAVE)]
        self.selector.close()
        for process in killed:
            if process in self.current:
                warnings.warn(
                    f"{self.current[process]} did not stop within {SECONDS_TO_SAVE:.0f} s and was "
                    "killed; it will resume from its last checkpoint",
                    stacklevel=2,
                )

    def start_run(self, name: str, request: Message) -> None:
        """Give a run to an idle process, or to a new one."""
        idle = (process for process in self.processes if process not in self.current)
        process = next(idle, None) or self._start_process()
        self.current[process] = name
        process.send(request)

    def _start_process(self) -> JsonSubprocess:
        module = "fedro.simulation.sweeps.run_process"
        process = JsonSubprocess(module, self.environment, stderr=self.log)
        self.processes.append(process)
        self.selector.register(process.output, selectors.EVENT_READ, process)
        return process

    def wait_for_events(self) -> Iterator[SweepEvent]:
        """The next events of the processes; the run of a dead process has failed."""
        for key, _ in self.selector.select(timeout=SECONDS_TO_SAVE):
            process: JsonSubprocess = key.data
            answers = process.receive()
            if answers is None:
                yield from self._remove_dead(process)
                continue
            for answer in answers:
                event = _event(self.current[process], answer)
                if event.outcome is not None:
                    del self.current[process]
                yield event

    def _remove_dead(self, process: JsonSubprocess) -> Iterator[SweepEvent]:
        self.selector.unregister(process.output)
        self.processes.remove(process)
        process.stop(SECONDS_TO_SAVE)
        if process not in self.current:
            return
        code = process.process.returncode
        reason = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        hint = ", often because memory ran out" if code == -9 else ""
        error = f"its process {reason}{hint}"
        yield SweepEvent(self.current.pop(process), 0, None, Outcome(None, error))


def _event(name: str, answer: Message) -> SweepEvent:
    """The event that an answer of a process reports."""
    given = tuple(answer.get("warnings", ()))
    if "error" in answer:
        return SweepEvent(name, answer["rounds"], None, Outcome(None, answer["error"], given))
    if "summary" in answer:
        outcome = Outcome(answer["summary"], None, given)
        return SweepEvent(name, answer["summary"]["rounds"], None, outcome)
    return SweepEvent(name, answer["rounds"], answer["accuracy"])
