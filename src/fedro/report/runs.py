"""Runs as their folders tell them, checked once so that nothing after this need doubt a value."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedro.runs import RunFolderError, read
from fedro.runs.identity import read_run
from fedro.simulation.experiment import Experiment

SIGNS = ("run.json", "rounds.jsonl", "summary.json")  # one of these, and a folder is a run's
DEPLOYED = "flower"  # the data set of runs whose clients keep their data to themselves
SCORES = ("accuracy", "clients", "worst", "loss", "backdoor")
Score = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of rounds.jsonl."""

    round: int
    lr: float | None
    sampled: list[int]
    byzantine: list[int] | None  # None in deployment: nobody knows
    missing: dict[int, str]
    rejected: dict[int, str]
    void: str | None
    takeover: bool
    attack: str | None
    train_loss: float | None
    error: float | None
    variance: float | None
    kappa_seen: float | None
    kappa_proved: float | None
    seconds: dict[str, float]
    score: Score | None


@dataclass(frozen=True)
class Run:
    """A run folder."""

    path: Path
    config: dict[str, Any]  # as run, with the defaults of keys that it does not have
    toml: str
    fingerprint: dict[str, Any]
    versions: dict[str, Any]
    created: str
    lines: list[Line]
    finished: bool
    sampled: int  # n̂
    tolerated: int  # b̂
    output: Score | None  # the score of the run's output, once it is complete
    examples: list[int] | None  # that each client trains on, where it was written down

    @property
    def deployed(self) -> bool:
        """Whether its clients were real ones."""
        return bool(self.config["dataset"] == DEPLOYED)

    @property
    def seed(self) -> int:
        """Of every draw."""
        return int(self.config["seed"])

    @property
    def rounds(self) -> int:
        """T, how many there are to be."""
        return int(self.config["rounds"])

    @property
    def byzantine(self) -> int:
        """b, the number of bad clients."""
        return int(self.config["byzantine"])

    @property
    def clients(self) -> int | None:
        """n, where the folder tells it."""
        if self.config["clients"] is None:
            return None if self.examples is None else len(self.examples)
        return int(self.config["clients"])

    @cached_property
    def final(self) -> Score | None:
        """The score of the output; of an unfinished run, the last until now."""
        if self.finished:
            return self.output
        return next((line.score for line in reversed(self.lines) if line.score), None)

    @property
    def known(self) -> bool:
        """Whether it is known who is bad: in a simulation, not in deployment."""
        return all(line.byzantine is not None for line in self.lines)

    @property
    def overrun(self) -> int | None:
        """Rounds with more bad clients than tolerated, where that is known."""
        if not self.known:
            return None
        return sum(len(line.byzantine or ()) > self.tolerated for line in self.lines)

    @property
    def seconds(self) -> float:
        """That all rounds took."""
        return sum(sum(line.seconds.values()) for line in self.lines)


def load(path: Path) -> Run:
    """The run in a folder, or an error that names what is damaged."""
    try:
        return _run(path)
    except RunFolderError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
        raise RunFolderError(f"{path} is damaged: {reason}. Put it back from a copy.") from None


def _run(path: Path) -> Run:
    run, found = read_run(path), read(path)
    summary = found.summary or {}
    examples = summary.get("examples")
    config = {**_defaults(found.config, summary), **found.config}
    for key in ("seed", "rounds", "byzantine", "clients"):
        if not isinstance(config[key], int) and not (key == "clients" and config[key] is None):
            raise ValueError(f"{key}={config[key]!r} is not a whole number")
    return Run(
        path=path,
        config=config,
        toml=run["config"],
        fingerprint=dict(found.fingerprint),
        versions=dict(run.get("versions") or {}),
        created=str(run.get("created", "")),
        lines=[_line(values, number) for number, values in enumerate(found.rounds, 1)],
        finished=found.finished,
        sampled=int(found.fingerprint["sampled"]),
        tolerated=int(found.fingerprint["tolerated"]),
        output=_score(summary["final"]) if found.finished else None,
        examples=None if examples is None else [int(size) for size in examples],
    )


def _defaults(config: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
    """What keys mean that are not there: in a simulation their defaults, else nobody knows."""
    defaults = {name: field.default for name, field in Experiment.model_fields.items()}
    if config.get("dataset") != DEPLOYED:
        return defaults
    return {**dict.fromkeys(defaults), "attack": "not known", "seed": int(summary.get("seed", 0))}


def _line(values: Mapping[str, Any], number: int) -> Line:
    numbers = ("lr", "train_loss", "error", "variance", "kappa_seen", "kappa_proved")
    try:
        return Line(
            round=int(values["round"]),
            sampled=[int(client) for client in values["sampled"]],
            byzantine=_clients(values["byzantine"]),
            missing=_reasons(values.get("missing")),
            rejected=_reasons(values.get("rejected")),
            void=_text(values.get("void")),
            takeover=bool(values.get("takeover", False)),
            attack=_text(values.get("attack")),
            seconds={k: _number(v) or 0.0 for k, v in values.get("seconds", {}).items()},
            score=_score(values["score"]) if values.get("score") else None,
            **{key: _number(values.get(key)) for key in numbers},
        )
    except KeyError as error:
        raise ValueError(f"line {number} of rounds.jsonl has no {error.args[0]!r}") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"line {number} of rounds.jsonl: {error}") from None


def _score(values: Mapping[str, Any]) -> Score:
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


def find(paths: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """All runs in these folders and in folders inside them, and what is wrong with the others."""
    found: dict[Path, Run] = {}
    troubles: list[str] = []
    for path in paths:
        if not path.is_dir():
            raise RunFolderError(f"{path} is not a folder: name run folders, or folders of them")
        folders = list(run_folders(path))
        if not folders:
            troubles.append(f"{path} holds no run, and no folder inside it does.")
        for folder in folders:
            try:
                found.setdefault(folder.resolve(), load(folder))
            except RunFolderError as error:
                troubles.append(str(error))
    if not found:
        raise RunFolderError("no runs found. " + " ".join(troubles))
    return list(found.values()), list(dict.fromkeys(troubles))


def run_folders(path: Path) -> Iterator[Path]:
    """The folder itself, if it is a run's; else those inside it, in order of their names."""

    def fail(error: OSError) -> None:
        raise RunFolderError(f"cannot read {error.filename}: {error.strerror}") from error

    for folder, inside, files in os.walk(path, onerror=fail):
        if any(sign in files for sign in SIGNS):
            inside.clear()
            yield Path(folder)
        inside.sort()
