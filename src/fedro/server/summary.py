"""The summary of a run, from the lines of its rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedro.rules import Rule
from fedro.server.diagnosis import diagnose

EVALUATIONS_IN_MEAN = 3
SCORE_KEYS = ("loss", "accuracy", "clients", "worst")


def summarize(
    rounds: Sequence[Mapping[str, Any]],
    *,
    sampled: int,
    tolerated: int,
    rule: Rule,
    server_lr: float = 1.0,
    evaluate_every: int = 1,
    examples: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Reduce the lines of rounds.jsonl to a few numbers.

    The scores are those of the final model, never of the best one. In a deployment nobody knows
    who is Byzantine: the fields that depend on it, and `examples` (how many each client trains
    on), are None. A run that was extended also evaluated where it ended before; such a score counts
    only if its round was due for one. `problem` says why the run has failed although it is
    complete, or is None.
    """
    due = [*rounds[evaluate_every - 1 : -1 : evaluate_every], rounds[-1]]
    scores = [line["score"] for line in due if line.get("score")]
    scores = scores[-EVALUATIONS_IN_MEAN:]
    last = scores[-1] if scores else dict.fromkeys(SCORE_KEYS)
    known = all(line["byzantine"] is not None for line in rounds)
    byzantine = [len(line["byzantine"]) for line in rounds] if known else []
    return {
        "final": rounds[-1].get("final") or last,
        "mean_of_last": {key: _mean([score.get(key) for score in scores]) for key in last},
        "evaluations_in_mean": len(scores),
        "problem": diagnose(rounds, tolerated=tolerated, rule=rule, server_lr=server_lr),
        "rounds": len(rounds),
        "void": sum(line["void"] is not None for line in rounds),
        "takeovers": sum(bool(line["takeover"]) for line in rounds) if known else None,
        "overrun": sum(bad > tolerated for bad in byzantine) if known else None,
        "most_byzantine": max(byzantine) if known else None,
        "sampled": sampled,
        "tolerated": tolerated,
        "rejected": sum(len(line["rejected"]) for line in rounds),
        "missing": sum(len(line["missing"]) for line in rounds),
        "seconds": sum(sum(line["seconds"].values()) for line in rounds),
        "examples": None if examples is None else list(examples),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean, or None if there is no value or one of them is missing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
