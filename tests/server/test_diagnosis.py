"""Why a complete run has failed: the causes are told apart."""

import json

import pytest

from fedro.rules import parse_rule
from fedro.server import diagnose, divergence

ROBUST, MEAN = parse_rule("nnm | trimmed_mean"), parse_rule("mean")
NAN = "holds NaN or Inf"


def line(number=0, **changes):
    """A round that samples clients 0 to 6, of which 5 and 6 are Byzantine."""
    given = {"round": number, "lr": 0.1, "sampled": list(range(7)), "byzantine": [5, 6]}
    given |= {"void": None, "takeover": False, "rejected": {}, "missing": {}, "diverged": 0}
    return {**given, "error": 1.0, "variance": 1.0, **changes}


def lost(number=0, **changes):
    """A round in which all honest losses are NaN."""
    rejected = {str(client): NAN for client in range(5)}
    return line(number, void="2 usable replies", rejected=rejected, diverged=5, **changes)


def silent(number=0, **changes):
    missing = {"5": "did not answer", "6": "did not answer"}
    given = {"sampled": [1, 2, 3, 5, 6], "missing": missing, "void": "3 usable replies"}
    return line(number, **{**given, **changes})


def told(rounds, rule=ROBUST):
    return diagnose(rounds, tolerated=2, rule=rule)


def test_a_run_that_trains_has_no_problem():
    assert told([line()] * 30) is None
    assert told([silent(), line()] * 10) is None
    assert told([line(), *[silent()] * 9]) is None
    assert told([silent()] * 20 + [line()]) is None
    assert told([line(diverged=2, rejected={"1": NAN, "2": NAN})] * 20) is None


@pytest.mark.parametrize("rounds", [1, 4, 30])
def test_a_learning_rate_that_is_too_large(rounds):
    problem = told([lost(i, lr=1e6) for i in range(rounds)])
    which = "The only round was" if rounds == 1 else f"All {rounds} rounds were"
    assert problem.startswith(f"{which} void: the model never changed.")
    assert "client_lr=1e+06 is too large: lower it" in problem


def test_a_learning_rate_of_the_server():
    rounds = [line(0), *[lost(i) for i in range(1, 12)]]
    problem = diagnose(rounds, tolerated=2, rule=ROBUST, server_lr=1e30)
    assert "server_lr=1e+30 or client_lr=0.1 is too large: lower it" in problem
    assert "server_lr" not in diagnose(rounds, tolerated=2, rule=ROBUST, server_lr=1.0)
    before_its_first_step = diagnose([lost()], tolerated=2, rule=ROBUST, server_lr=1e30)
    assert "server_lr" not in before_its_first_step
    assert "server_lr=1e+30" in divergence(rounds[:2], tolerated=2, rule=ROBUST, server_lr=1e30)


def test_the_last_rounds():
    problem = told([line()] * 5 + [lost()] * 3)
    assert problem.startswith("The last 3 of 8 rounds were void: the model did not change any more")
    assert told([line()] * 5 + [lost()]).startswith("The last of 6 rounds was void")


def test_the_first_round_cannot_be_the_fault_of_the_attack():
    assert "client_lr" in told([lost()] * 5, MEAN)


def test_an_attack_on_a_rule_that_withstands_none():
    problem = told([line(0), line(1, error=1e30), *[lost(i) for i in range(2, 12)]], MEAN)
    assert "The attack destroyed the model, most likely in round 1: the rule mean" in problem
    assert "nnm | trimmed_mean" in problem
    infinite = json.loads(json.dumps(line(0, error=None)))  # JSON has no infinity
    assert "destroyed the model, most likely in round 0" in told([infinite, *[lost()] * 9], MEAN)


def test_a_weak_attack_is_not_blamed():
    for rule in (MEAN, ROBUST):
        assert "client_lr" in told([line(error=2.0), *[lost()] * 10], rule)


def test_more_byzantine_clients_than_tolerated():
    overrun = line(3, byzantine=[4, 5, 6], error=1e9)
    problem = told([line(), overrun, *[lost()] * 10])
    assert "in round 3, which sampled 3 Byzantine clients and tolerates 2" in problem
    assert "client_lr" in told([line(error=1e9), *[lost()] * 10])  # within the tolerance


def test_a_rule_that_makes_nan_of_finite_updates():
    problem = told([line(), line(1, byzantine=[], error=None), *[lost(2)] * 10])
    assert "In round 1, the rule nnm | trimmed_mean made NaN or Inf of finite updates" in problem


def test_attackers_whose_updates_alone_are_used():
    rounds = [line(error=1e30), *[{**lost(i), "void": None} for i in range(12)]]
    assert "made no progress: no honest loss was finite" in told(rounds, MEAN)
    older = [{k: v for k, v in each.items() if k != "diverged"} for each in rounds]
    assert told(older, MEAN) == told(rounds, MEAN)


def test_too_few_replies():
    problem = told([silent()] * 12)
    assert "3 of 5 replies could be used (2× did not answer)" in problem
    assert "tolerating 2 needs at least 5. Sample at least 7 clients" in problem
    missing = {str(client): "error 1" for client in range(4)}
    problem = told([line(missing=missing, void="3 usable replies")] * 12)
    assert "Find out why so many replies are lost" in problem


def test_rejected_replies_of_a_deployment():
    rejected = {str(client): "the wrong shape" for client in range(7)}
    rounds = [line(byzantine=None, takeover=None, diverged=None, rejected=rejected, void="0")] * 10
    assert "0 of 7 replies could be used (7× the wrong shape)" in told(rounds)


def test_a_rule_that_cannot_use_the_rows():
    problem = told([line(void="bulyan with n=7 rows and b=2: needs n ≥ 4b+3")] * 10)
    assert "could not use the updates: bulyan with n=7 rows" in problem


def test_losses_that_are_not_finite_are_told_when_it_begins():
    healthy, ill = line(0), lost(1, lr=1e6)
    notices = [
        divergence(rounds, tolerated=2, rule=ROBUST)
        for rounds in ([healthy], [healthy, ill], [healthy, ill, ill], [ill, healthy, ill], [ill])
    ]
    assert [notice is not None for notice in notices] == [False, True, False, True, True]
    assert notices[1].startswith("round 1: the loss of 5 of 5 honest clients is not finite. ")
    assert "client_lr=1e+06" in notices[1]
