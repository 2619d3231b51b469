"""Reads run folders into `RunData` and checks every value, so that the charts can rely on them."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedro.data.federation import describe_data
from fedro.runs import RecordedRun, RunFolderError, read, read_run_json
from fedro.runs.suspects import suspects_in
from fedro.server.suspect_report import SuspectReport
from fedro.simulation.experiment import Experiment

RUN_FILES = ("run.json", "rounds.jsonl", "summary.json")  # any of them marks a run folder
DEPLOYED = "flower"  # the `dataset` of deployed runs, whose clients keep their data
SCORES = ("accuracy", "clients", "worst", "loss", "backdoor")
ScoreValues = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class RoundData:
    """One round of a run, from its line of rounds.jsonl."""

    round: int
    lr: float | None
    sampled: list[int]
    byzantine: list[int] | None  # None in a deployed run, where it is unknown
    missing: dict[int, str]
    rejected: dict[int, str]
    void: str | None
    takeover: bool
    attack: str | None
    train_loss: float | None
    diverged: int  # honest clients whose loss was not finite; 0 in older runs, which do not tell
    error: float | None
    variance: float | None
    kappa_seen: float | None
    kappa_proved: float | None
    seconds: dict[str, float]
    score: ScoreValues | None


@dataclass(frozen=True)
class RunData:
    """A run, from its folder."""

    path: Path
    config: dict[str, Any]  # with the defaults of keys that the file leaves out
    toml: str
    fingerprint: dict[str, Any]
    versions: dict[str, Any]
    created: str
    rounds: list[RoundData]
    finished: bool
    sampled: int  # n̂
    tolerated: int  # b̂
    output_score: ScoreValues | None  # the score of the trained model, once the run is finished
    problem: str | None  # why the run has come to nothing although it is finished
    examples: list[int] | None  # training examples of each client, where recorded
    data: str | None  # the task, the number of classes and of examples, where recorded
    suspects: SuspectReport | None  # who lies; None without evidence, as in older runs

    @property
    def deployed(self) -> bool:
        """Whether the run used real clients through Flower."""
        return bool(self.config["dataset"] == DEPLOYED)

    @property
    def seed(self) -> int:
        """The seed of all random streams."""
        return int(self.config["seed"])

    @property
    def planned_rounds(self) -> int:
        """T, the number of rounds of the finished run."""
        return int(self.config["rounds"])

    @property
    def byzantine(self) -> int:
        """b, the number of Byzantine clients."""
        return int(self.config["byzantine"])

    @property
    def clients(self) -> int | None:
        """n, or None if the folder does not record it."""
        if self.config["clients"] is None:
            return None if self.examples is None else len(self.examples)
        return int(self.config["clients"])

    @cached_property
    def last_score(self) -> ScoreValues | None:
        """The score of the trained model; for an unfinished run, of its last evaluation."""
        if self.finished:
            return self.output_score
        return next((round_.score for round_ in reversed(self.rounds) if round_.score), None)

    @property
    def byzantine_known(self) -> bool:
        """Whether the run records who is Byzantine: a simulation does, a deployment cannot."""
        return all(round_.byzantine is not None for round_ in self.rounds)

    @property
    def overruns(self) -> int | None:
        """Rounds that sampled more Byzantine clients than tolerated; None if unknown."""
        if not self.byzantine_known:
            return None
        return sum(len(round_.byzantine or ()) > self.tolerated for round_ in self.rounds)

    @property
    def seconds(self) -> float:
        """The time that all rounds took."""
        return sum(sum(round_.seconds.values()) for round_ in self.rounds)


def load_run(path: Path) -> RunData:
    """Read a run folder, or raise a `RunFolderError` that names what is damaged."""
    try:
        return _run(path)
    except RunFolderError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
        raise RunFolderError(f"{path} is damaged: {reason}. Put it back from a copy.") from None


def _run(path: Path) -> RunData:
    run, recorded = read_run_json(path), read(path)
    summary = recorded.summary or {}
    examples = summary.get("examples")
    config = {**_defaults(recorded.config, summary), **recorded.config}
    for key in ("seed", "rounds", "byzantine", "clients"):
        if not isinstance(config[key], int) and not (key == "clients" and config[key] is None):
            raise ValueError(f"{key}={config[key]!r} is not a whole number")
    return RunData(
        path=path,
        config=config,
        toml=run["config"],
        fingerprint=dict(recorded.fingerprint),
        versions=dict(run.get("versions") or {}),
        created=str(run.get("created", "")),
        rounds=[_round(values, number) for number, values in enumerate(recorded.rounds, 1)],
        finished=recorded.finished,
        sampled=int(recorded.fingerprint["sampled"]),
        tolerated=int(recorded.fingerprint["tolerated"]),
        output_score=_score(summary["final"]) if recorded.finished else None,
        problem=_text(summary.get("problem")),
        examples=None if examples is None else [int(size) for size in examples],
        data=_data(summary),
        suspects=_suspects(path, recorded),
    )


def _suspects(path: Path, recorded: RecordedRun) -> SuspectReport | None:
    """Who lies, if the run has any evidence of it."""
    if all(line.get("evidence") is None for line in recorded.rounds):
        return None
    return suspects_in(path, recorded)


def _data(summary: Mapping[str, Any]) -> str | None:
    """One line about the data; older run folders do not record all that it needs."""
    sizes, test_sizes = summary.get("examples"), summary.get("test_examples")
    if not sizes or not test_sizes:
        return None
    counts = ([int(size) for size in values] for values in (sizes, test_sizes))
    return describe_data(int(summary["classes"]), *counts)


def _defaults(config: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
    """Values of keys that the configuration leaves out; in a deployed run they are unknown."""
    defaults = {name: field.default for name, field in Experiment.model_fields.items()}
    if config.get("dataset") != DEPLOYED:
        return defaults
    return {**dict.fromkeys(defaults), "attack": "unknown", "seed": int(summary.get("seed", 0))}


def _round(values: Mapping[str, Any], number: int) -> RoundData:
    numbers = ("lr", "train_loss", "error", "variance", "kappa_seen", "kappa_proved")
    try:
        return RoundData(
            round=int(values["round"]),
            sampled=[int(client) for client in values["sampled"]],
            byzantine=_clients(values["byzantine"]),
            missing=_reasons(values.get("missing")),
            rejected=_reasons(values.get("rejected")),
            void=_text(values.get("void")),
            takeover=bool(values.get("takeover", False)),
            attack=_text(values.get("attack")),
            diverged=int(values.get("diverged") or 0),
            seconds={k: _number(v) or 0.0 for k, v in values.get("seconds", {}).items()},
            score=_score(values["score"]) if values.get("score") else None,
            **{key: _number(values.get(key)) for key in numbers},
        )
    except KeyError as error:
        raise ValueError(f"line {number} of rounds.jsonl has no {error.args[0]!r}") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"line {number} of rounds.jsonl: {error}") from None


def _score(values: Mapping[str, Any]) -> ScoreValues:
    return {key: _number(values.get(key)) for key in SCORES}


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not a number")
    return float(value) if math.isfinite(value) else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _clients(values: Iterable[Any] | None) -> list[int] | None:
    return None if values is None else [int(client) for client in values]


def _reasons(values: Mapping[str, Any] | None) -> dict[int, str]:
    return {int(client): str(reason) for client, reason in (values or {}).items()}


def find_runs(paths: Iterable[Path]) -> tuple[list[RunData], list[str]]:
    """Read all runs in these folders and their subfolders; also return what could not be read."""
    runs: dict[Path, RunData] = {}
    problems: list[str] = []
    for path in paths:
        if not path.is_dir():
            raise RunFolderError(f"{path} is not a folder: name run folders, or folders of them")
        folders = list(run_folders(path))
        if not folders:
            problems.append(f"{path} contains no run folder.")
        for folder in folders:
            try:
                runs.setdefault(folder.resolve(), load_run(folder))
            except RunFolderError as error:
                problems.append(str(error))
    if not runs:
        raise RunFolderError("no runs found. " + " ".join(problems))
    return list(runs.values()), list(dict.fromkeys(problems))


def run_folders(path: Path) -> Iterator[Path]:
    """The folder itself if it is a run folder, else the run folders below it, sorted by name."""

    def fail(error: OSError) -> None:
        raise RunFolderError(f"cannot read {error.filename}: {error.strerror}") from error

    for folder, subfolders, files in os.walk(path, onerror=fail):
        if any(name in files for name in RUN_FILES):
            subfolders.clear()
            yield Path(folder)
        subfolders.sort()
