"""Run folders as simulations and deployments write them, for the tests of `fedro watch`."""

from pathlib import Path
from typing import Any

from fedro.runs import RunFolder

SAMPLED, TOLERATED, ROUNDS = 10, 3, 20


def begin(path: Path, **config: Any) -> RunFolder:
    """Begin a run."""
    values = {"rounds": ROUNDS, "dataset": "digits", **config}
    return RunFolder.create(path, values, {"sampled": SAMPLED, "tolerated": TOLERATED})


def resume(path: Path) -> RunFolder:
    """Resume the run, whatever its configuration is."""
    fingerprint = {"sampled": SAMPLED, "tolerated": TOLERATED}
    return RunFolder.resume(path, {}, fingerprint, may_differ=("rounds", "dataset"))


def line(round: int, **changes: Any) -> dict[str, Any]:
    """A line of rounds.jsonl of a simulation."""
    return {
        "round": round,
        "lr": 0.1,
        "sampled": list(range(SAMPLED)),
        "byzantine": [0, 1],
        "missing": {},
        "rejected": {},
        "void": None,
        "takeover": False,
        "kappa_seen": 0.5,
        "kappa_proved": 2.0,
        "seconds": {"train": 1.5, "aggregate": 0.5},
        **changes,
    }


def deployed_line(round: int, **changes: Any) -> dict[str, Any]:
    """A line of rounds.jsonl of a deployment."""
    mean = {"value": 0.8, "low": 0.7, "high": 0.9, "replies": 10}
    values = {
        "byzantine": None,
        "takeover": None,
        "kappa_seen": None,
        "available": 40,
        "tolerated": TOLERATED,
        "metrics": {"train": {}, "evaluate": {"eval_acc": mean}},
        **changes,
    }
    return line(round, **values)


def score(accuracy: float, worst: float = 0.5) -> dict[str, Any]:
    """The score of a simulation."""
    return {
        "loss": 1 - accuracy,
        "accuracy": accuracy,
        "clients": accuracy,
        "worst": worst,
        "backdoor": None,
    }
