"""How a run is going: its folder, read again and again while another process writes it."""

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedro.runs.errors import RunFolderError, read_bytes
from fedro.runs.json_lines import parse_json
from fedro.runs.lock import holder
from fedro.runs.reading import read_config, read_run_json, read_summary

DEPLOYED = "flower"  # the `dataset` of deployed runs
RECENT_ROUNDS = 20  # for the time of a round
SCORES = {
    "accuracy": "accuracy",
    "clients": "mean client",
    "worst": "worst tenth",
    "backdoor": "backdoor",
    "loss": "loss",
}
State = Literal["running", "stopped", "finished", "failed"]


class Evaluation(NamedTuple):
    """A value of a metric, with its range over the clients where it is known."""

    round: int
    value: float
    low: float | None = None
    high: float | None = None


class Margin(NamedTuple):
    """By how many usable replies a round exceeded 2b̂. At 0 or less, the round is void."""

    round: int
    replies: int


class VoidRound(NamedTuple):
    """A round that left the model as it was."""

    round: int
    reason: str


@dataclass
class Progress:
    """What the lines of rounds.jsonl say, added up line by line; rounds count from 0, as there.

    Attributes:
        sampled: n̂ of the plan.
        tolerated: b̂ of the plan.
        rounds: The number of rounds until now.
        invited: The number of invitations until now.
        evaluations: The evaluations of the model by name of the metric.
        margin: The margin of the last round that invited anybody.
        lowest_margin: The lowest margin until now.
        void: The number of void rounds.
        void_in_a_row: The number of void rounds at the end.
        last_void: The last void round.
        missing: How often each client's reply was missing, by reason.
        rejected: How often each client's reply was rejected, by reason.
        overruns: Rounds that sampled more Byzantine clients than tolerated; None if it is unknown
            who is Byzantine.
        kappa_seen: The κ that was observed in the last round where it is known.
        kappa_largest: The largest κ that was observed.
        kappa_proved: The upper bound on κ that was proved for that round.
        available: The number of nodes online in the last round of a deployment.
        tolerated_now: b̂ of the last round.
        suspects: The clients that are suspected, by the last round that says so.
        seconds: The time that all rounds took.
    """

    sampled: int
    tolerated: int
    rounds: int = 0
    invited: int = 0
    evaluations: dict[str, list[Evaluation]] = field(default_factory=dict)
    margin: Margin | None = None
    lowest_margin: Margin | None = None
    void: int = 0
    void_in_a_row: int = 0
    last_void: VoidRound | None = None
    missing: dict[str, Counter[str]] = field(default_factory=dict)
    rejected: dict[str, Counter[str]] = field(default_factory=dict)
    overruns: int | None = 0
    kappa_seen: float | None = None
    kappa_largest: float | None = None
    kappa_proved: float | None = None
    available: int | None = None
    tolerated_now: int | None = None
    suspects: list[str] = field(default_factory=list)
    seconds: float = 0.0
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_ROUNDS))

    @property
    def seconds_per_round(self) -> float | None:
        """The mean time of the last rounds."""
        return sum(self._recent) / len(self._recent) if self._recent else None

    @property
    def planned_margin(self) -> int:
        """n̂ − 2b̂, the margin of a round without a lost reply."""
        return self.sampled - 2 * self.tolerated

    def add(self, line: Mapping[str, Any]) -> None:
        """Add the line of a round."""
        self.rounds = int(line["round"]) + 1
        tolerated = line.get("tolerated")
        self.tolerated_now = self.tolerated if tolerated is None else int(tolerated)
        self.available = line.get("available")
        if "suspects" in line and line["void"] is None:  # a void round decides nothing
            self.suspects = [str(client) for client in line["suspects"] or ()]
        self._recent.append(sum(line["seconds"].values()))
        self.seconds += self._recent[-1]
        self._add_replies(line)
        self._add_void(line["void"])
        self._add_evaluations(line)
        self._add_byzantine(line)

    def _add_replies(self, line: Mapping[str, Any]) -> None:
        invited = len(line["sampled"])
        self.invited += invited
        for lost, counts in ((line["missing"], self.missing), (line["rejected"], self.rejected)):
            for client, reason in lost.items():
                counts.setdefault(client, Counter())[str(reason)] += 1
        if invited:
            usable = invited - len(line["missing"]) - len(line["rejected"])
            assert self.tolerated_now is not None
            margin = Margin(self.rounds - 1, usable - 2 * self.tolerated_now)
            self.margin = margin
            if self.lowest_margin is None or margin.replies < self.lowest_margin.replies:
                self.lowest_margin = margin

    def _add_void(self, reason: str | None) -> None:
        self.void_in_a_row = 0 if reason is None else self.void_in_a_row + 1
        if reason is not None:
            self.void += 1
            self.last_void = VoidRound(self.rounds - 1, str(reason))

    def _add_evaluations(self, line: Mapping[str, Any]) -> None:
        by_clients = line.get("metrics", {}).get("evaluate", {})
        for name, mean in by_clients.items():
            self._evaluated(name, mean["value"], mean["low"], mean["high"])
        score = line.get("score") or {}
        if by_clients and score.get("accuracy") is None:
            return  # the score repeats what the clients say
        for key, name in SCORES.items():
            self._evaluated(name, score.get(key))

    def _evaluated(
        self, name: str, value: float | None, low: float | None = None, high: float | None = None
    ) -> None:
        if value is not None:
            new = Evaluation(self.rounds - 1, float(value), low, high)
            self.evaluations.setdefault(name, []).append(new)

    def _add_byzantine(self, line: Mapping[str, Any]) -> None:
        byzantine, seen = line["byzantine"], line["kappa_seen"]
        if byzantine is None or self.overruns is None:
            self.overruns = None
        else:
            self.overruns += len(byzantine) > self.tolerated
        if seen is not None:
            self.kappa_seen, self.kappa_proved = float(seen), line["kappa_proved"]
            self.kappa_largest = max(self.kappa_seen, self.kappa_largest or 0.0)


class Node(NamedTuple):
    """A node of a deployment, from ledger.json."""

    id: str
    quarantined: bool


@dataclass(frozen=True)
class RunStatus:
    """A run at one moment.

    Attributes:
        path: The run folder.
        state: "running" while a process holds the lock; "finished" or "failed" when the run is
            complete; "stopped" otherwise, because it was interrupted or has crashed.
        rounds: T, the number of rounds of the complete run.
        deployed: Whether the run has real clients.
        process: The id of the process that holds the lock, or None.
        age: The seconds since the last round was written, or since the run began.
        problem: Why the run has failed although it is complete.
        progress: What the rounds until now say.
        nodes: The nodes of a deployment by their number in rounds.jsonl.
    """

    path: Path
    state: State
    rounds: int
    deployed: bool
    process: str | None
    age: float
    problem: str | None
    progress: Progress
    nodes: Mapping[str, Node]


class RunFollower:
    """Follows a run folder. Each call of `status` reads only what is new.

    Example:
        >>> follower = RunFollower("runs/first")
        >>> print(follower.status().progress.rounds)  # doctest: +SKIP
        120
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._lines = LineTail(self.path / "rounds.jsonl")
        self._progress: Progress | None = None

    @property
    def begun(self) -> bool:
        """Whether the folder holds a run."""
        return (self.path / "run.json").exists()

    def status(self) -> RunStatus:
        """Read the folder.

        Raises:
            RunFolderError: The folder holds no run, or a file is damaged.
        """
        process = holder(self.path)  # before the summary, which is written before it is released
        summary = read_summary(self.path)  # before the lines: if it is there, they all are
        try:
            return self._status(process, summary)
        except RunFolderError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
            raise RunFolderError(
                f"{self.path} is damaged: {reason}. Put it back from a copy."
            ) from None

    def _status(self, process: str | None, summary: Mapping[str, Any] | None) -> RunStatus:
        config, fingerprint = read_config(self.path), read_run_json(self.path)["fingerprint"]
        anew, lines = self._lines.new_lines()
        if anew or self._progress is None:
            self._progress = Progress(int(fingerprint["sampled"]), int(fingerprint["tolerated"]))
        for line in lines:
            self._progress.add(parse_json(line, f"a line of {self._lines.path}"))
        problem = None if summary is None else summary.get("problem")
        return RunStatus(
            path=self.path,
            state=_state(process, summary is not None, problem),
            rounds=int(config["rounds"]),
            deployed=config.get("dataset") == DEPLOYED,
            process=process,
            age=self._age(),
            problem=problem,
            progress=self._progress,
            nodes=_nodes(self.path / "ledger.json"),
        )

    def _age(self) -> float:
        files = (self.path / "rounds.jsonl", self.path / "run.json")
        times = [file.stat().st_mtime for file in files if file.exists()]
        return max(0.0, time.time() - max(times))


class LineTail:
    """The end of a file that another process appends to and sometimes cuts back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end, self._last = 0, b""  # where the last line that was read ends, and that line

    def new_lines(self) -> tuple[bool, list[bytes]]:
        """Return the complete lines since the last call.

        Returns:
            Whether the file was cut back or replaced, so that these are all its lines; and the
            lines.
        """
        data = _read_from(self.path, self._end - len(self._last))
        anew = not data.startswith(self._last)
        if anew:
            self._end, self._last = 0, b""
            data = _read_from(self.path, 0)
        *lines, _ = data[len(self._last) :].split(b"\n")
        if lines:
            self._last = lines[-1] + b"\n"
            self._end += sum(len(line) + 1 for line in lines)
        return anew, lines


def find_runs(path: Path) -> list[Path]:
    """List the run folders in a folder, such as that of a sweep, by name."""
    try:
        return sorted(file.parent for file in path.glob("*/run.json"))
    except OSError:
        return []


def _read_from(path: Path, start: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from error


def _state(process: str | None, complete: bool, problem: object) -> State:
    if complete:
        return "finished" if problem is None else "failed"
    return "stopped" if process is None else "running"


def _nodes(path: Path) -> dict[str, Node]:
    """Read the nodes of a deployment; none if there is no ledger."""
    data = read_bytes(path)
    records: Iterable[tuple[str, Any]] = () if data is None else parse_json(data, path).items()
    return {
        str(record["number"]): Node(node, record.get("quarantined") is not None)
        for node, record in records
    }
