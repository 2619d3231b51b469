"""The report on suspects follows from the lines of rounds.jsonl alone, and says what it cannot."""

import json
import time

import numpy as np
import pytest

import fedro
from fedro.server import Evidence, RowFacts, look_at
from fedro.server import suspects as live_suspects
from fedro.server.evidence import LOOKS
from fedro.server.suspect_report import groups_of_copies, replay, report_suspects
from fedro.server.suspects import certainly_byzantine
from suspect_cases import against, rounds_of

BAD = (3, 7, 11)


def live(lines, fdr=0.05):
    """What the server itself had flagged after the last of these rounds."""
    evidence = Evidence()
    for line in lines:
        if line["evidence"] is not None:
            facts = RowFacts.from_dict(line["evidence"])
            evidence = look_at(evidence.add(facts), line["round"], fdr)
    return live_suspects(evidence), evidence


@pytest.mark.parametrize("rounds", LOOKS)
@pytest.mark.parametrize("fdr", [0.05, 0.3])
def test_at_a_look_the_report_is_the_decision_of_the_server(rounds, fdr):
    lines = rounds_of(rounds, cosine=against(*BAD), copying=(1, 2, 4), noise=0.25)
    flagged, evidence = live(lines, fdr)
    report = report_suspects(lines, fdr)
    assert report.suspects == flagged
    assert report.looks == evidence.looks
    assert flagged or rounds == LOOKS[0]


def test_between_looks_there_is_a_last_one():
    turned = rounds_of(49, clients=12, cosine=against(3, since=33))
    assert live(turned)[0] == []
    report = report_suspects(turned)
    assert report.suspects == [3]
    assert report.looks == 5  # after 10, 15, 22 and 33 rounds, and now
    (suspect,) = (client for client in report.clients if client.flagged)
    assert suspect.since == 48
    assert suspect.why == ["direction"]
    assert suspect.recent_slope < 0 < suspect.slope


def test_since_is_the_round_of_the_decision():
    report = report_suspects(rounds_of(40, cosine=against(*BAD), byzantine=BAD))
    assert report.suspects == list(BAD)
    assert {client.since for client in report.clients if client.flagged} <= {9, 14, 21}
    assert (report.precision, report.recall) == (1.0, 1.0)
    assert all(client.z < -5 for client in report.clients if client.flagged)
    assert all(abs(client.z) < 3 for client in report.clients if not client.flagged)


def test_suspects_come_first_then_the_most_extreme():
    report = report_suspects(rounds_of(40, cosine=against(*BAD)))
    assert [client.client for client in report.clients[:3] if client.flagged] != []
    rest = [client.extreme for client in report.clients if not client.flagged]
    assert rest == sorted(rest, reverse=True)
    assert len(report.clients) == 20


def test_void_rounds_count_for_nothing():
    lines = rounds_of(40, cosine=against(*BAD), void=range(10, 20))
    without = [line for line in lines if line["evidence"] is not None]
    assert report_suspects(lines) == report_suspects(without)
    assert report_suspects(lines).rounds == 30


# --- copies ----------------------------------------------------------------------------------


def test_copies_and_since_when():
    lines = rounds_of(30, copying=(1, 2, 4))
    report = report_suspects(lines)
    assert report.suspects == [1, 2, 4]
    assert report.groups == [[1, 2, 4]]
    assert report.at_least == 2  # one of the three may be the one that was copied
    for client in report.clients:
        if client.client in (1, 2, 4):
            assert client.why == ["copies"]
            assert set(client.partners) == {1, 2, 4} - {client.client}
            assert client.copies > 0.25
            until = [line for line in lines if line["round"] <= client.since]
            assert client.client in live(until)[0]
            assert client.client not in live(until[:-1])[0]
        else:
            assert (client.copies, client.partners, client.since) == (0, [], None)


def test_copies_need_no_directions():
    report = report_suspects(rounds_of(9, clients=6, sampled=6, copying=(1, 2, 4)))
    assert report.suspects == [1, 2, 4]
    assert not report.enough


@pytest.mark.parametrize("seed", range(20))
def test_groups_agree_with_the_number_that_must_be_byzantine(seed):
    rng = np.random.default_rng(seed)
    linked = np.triu(rng.random((9, 9)) < 0.4, 1)
    pairs = np.array([(i, j, 1) for i, j in zip(*np.nonzero(linked), strict=True)])
    groups = groups_of_copies(pairs)
    assert sum(len(group) - 1 for group in groups) == certainly_byzantine(
        pairs, np.zeros(9, dtype=bool)
    )
    members = [client for group in groups for client in group]
    assert len(members) == len(set(members))
    for group in groups:
        assert all(linked[i, j] for i in group for j in group if i < j)


# --- not enough ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "no round is complete"),
        (rounds_of(4, void=range(4)), "all 4 rounds were void"),
        (rounds_of(9, cosine=against(*BAD)), "9 rounds with evidence; the first decision"),
        (rounds_of(30, clients=7, sampled=7, cosine=against(3)), "only 7 clients were drawn 3"),
        (rounds_of(12, clients=400, sampled=12), "only 2 clients were drawn 3"),
        (rounds_of(30, cosine=lambda client, round: 0.0), "agree too little"),
        (rounds_of(30, cosine=lambda client, round: -0.3), "agree too little"),
    ],
)
def test_too_little_evidence_is_said(lines, reason):
    report = report_suspects(lines)
    assert not report.enough
    assert reason in report.reason
    assert report.suspects == []
    assert report.at_least == 0
    assert all(client.z is None for client in report.clients) or report.rounds == 9


def test_nobody_is_another_answer_than_not_enough():
    report = report_suspects(rounds_of(30))
    assert (report.enough, report.reason, report.suspects) == (True, None, [])
    assert report.median == pytest.approx(1, abs=0.1)


# --- forms -----------------------------------------------------------------------------------


def test_json_has_no_nan_and_everything():
    report = report_suspects(rounds_of(30, cosine=against(*BAD), byzantine=BAD), planned=2)
    values = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert values["suspects"] == list(BAD)
    assert {"fdr", "rounds", "looks", "groups", "enough", "reason", "at_least"} <= values.keys()
    first = values["clients"][0]
    assert first["client"] in BAD
    assert first["flagged"] is True
    assert {"draws", "since", "slope", "z", "copies", "distance", "norm", "why"} <= first.keys()
    deployed = report_suspects(rounds_of(30, byzantine=None)).as_dict()
    assert "precision" not in deployed
    assert deployed["byzantine"] is None


def test_table_as_text():
    report = report_suspects(
        rounds_of(30, cosine=against(*BAD), byzantine=None), nodes={3: "18446744073709551557"}
    )
    assert len(str(report).splitlines()) == 21
    assert "18446744073709551557" in str(report)
    assert len(report.table(unflagged=2)) == 1 + len(BAD) + 2
    assert "truth" not in report.table()[0]


def test_what_python_accepts():
    lines = rounds_of(30, cosine=against(*BAD))
    assert fedro.suspects(lines, fdr="5%") == fedro.suspects(lines) == report_suspects(lines)
    assert fedro.suspects(iter(lines)).suspects == list(BAD)
    assert fedro.suspects(lines, fdr=0.2).fdr == 0.2
    for wrong in (0, 1, -0.1, "120%", "much", True, float("nan")):
        with pytest.raises(ValueError, match="fdr="):
            fedro.suspects(lines, fdr=wrong)
    with pytest.raises(ValueError, match="an older version"):
        fedro.suspects([{"round": 0, "sampled": [1], "byzantine": []}])


def test_rounds_of_a_run_are_accepted():
    experiment = fedro.Experiment(
        clients=12, byzantine=2, attack="sign_flip", rounds=15, local_steps=2, engine="inline"
    )
    rounds = list(fedro.run(experiment))
    report = fedro.suspects(rounds)
    assert report.suspects == rounds[-1].suspects
    assert report.rounds == 15
    lines = [json.loads(json.dumps(round_.as_dict())) for round_ in rounds]
    assert fedro.suspects(lines) == report


@pytest.mark.slow
def test_500_rounds_with_many_copies_are_quick():
    lines = rounds_of(500, clients=200, sampled=50, copying=range(60))
    start = time.process_time()
    assert len(replay(lines, 0.05).after.pairs) == 60 * 59 / 2
    assert time.process_time() - start < 20
