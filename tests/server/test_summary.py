"""The summary of a run, from the lines of its rounds."""

import pytest

from fedro.rules import parse_rule
from fedro.server import summarize

RULE = parse_rule("trimmed_mean")


def line(**changes):
    given = {"byzantine": [], "void": None, "takeover": False, "rejected": {}, "missing": {}}
    return {**given, "seconds": {"train": 1.0, "aggregate": 0.5}, **changes}


def score(accuracy, **changes):
    return {"loss": 1.0, "accuracy": accuracy, "clients": accuracy, "worst": 0.0, **changes}


def test_a_simulated_run():
    rounds = [
        line(byzantine=[1], score=score(0.1)),
        line(byzantine=[1, 2], void="too few", missing={"4": "did not answer"}),
        line(byzantine=[1, 2, 3], takeover=True, rejected={"1": "holds NaN or Inf"}),
        line(score=score(0.5)),
        line(score=score(0.6)),
        line(score=score(0.7), final=score(0.8)),
    ]
    summary = summarize(rounds, sampled=7, tolerated=2, rule=RULE, examples=[3, 4])
    assert summary["final"]["accuracy"] == 0.8  # of the final model, not of the best
    assert abs(summary["mean_of_last"]["accuracy"] - 0.6) < 1e-12
    assert summary["evaluations_in_mean"] == 3
    assert (summary["rounds"], summary["void"], summary["takeovers"]) == (6, 1, 1)
    assert (summary["overrun"], summary["most_byzantine"]) == (1, 3)
    assert (summary["missing"], summary["rejected"], summary["seconds"]) == (1, 1, 9.0)
    assert (summary["sampled"], summary["tolerated"], summary["examples"]) == (7, 2, [3, 4])


def test_what_a_deployment_cannot_know_is_none():
    summary = summarize(
        [line(byzantine=None, takeover=None)] * 2, sampled=7, tolerated=2, rule=RULE
    )
    for key in ("takeovers", "overrun", "most_byzantine", "examples"):
        assert summary[key] is None
    assert set(summary["final"].values()) == {None}
    assert summary["evaluations_in_mean"] == 0


def test_a_mean_with_an_unknown_value_is_unknown():
    rounds = [line(score=score(None)), line(score=score(0.5))]
    summary = summarize(rounds, sampled=7, tolerated=2, rule=RULE)
    assert summary["mean_of_last"]["accuracy"] is None
    assert summary["mean_of_last"]["loss"] == 1.0


def test_the_evaluation_at_an_old_end_counts_only_if_it_was_due():
    scores = {9: 0.1, 19: 0.2, 24: 0.9, 29: 0.3, 39: 0.4}
    rounds = [
        line(score=score(scores[number]) if number in scores else None) for number in range(40)
    ]
    summary = summarize(rounds, sampled=7, tolerated=2, rule=RULE, evaluate_every=10)
    assert summary["mean_of_last"]["accuracy"] == pytest.approx(0.3)
    assert summary["final"]["accuracy"] == 0.4
