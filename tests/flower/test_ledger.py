"""The ledger counts what each node did, and comes back from a checkpoint."""

import numpy as np
import torch

from fedro.flower.ledger import MAX_REASONS_PER_NODE, Ledger
from fedro.flower.replies import Received
from fedro.server import Round, RowFacts, State


def test_the_ledger_counts_and_comes_back():
    ledger = Ledger()
    ledger.add_new([5, 2**64 - 1], 0)
    ledger.add_new([7, 5], 1)
    assert [ledger.number(node) for node in (5, 2**64 - 1, 7)] == [0, 1, 2]
    for round in range(3):
        found = Received([5, 7], missing={5: "did not answer"}, rejected={7: f"reason {round}"})
        assert ledger.record_round(found, round, 2) == ([7] if round == 1 else [])
    again = Ledger.from_dict(ledger.as_dict())
    assert again.nodes == ledger.nodes
    assert again.quarantined == {7}
    assert again.nodes[7].quarantined == 2
    assert (again.nodes[5].missing, again.nodes[5].used) == ({"did not answer": 3}, 0)
    for round in range(3 * MAX_REASONS_PER_NODE):
        ledger.record_round(Received([7], rejected={7: f"story {round}"}), round, None)
    assert len(ledger.nodes[7].rejected) == MAX_REASONS_PER_NODE + 1
    assert ledger.nodes[7].rejections == 3 + 3 * MAX_REASONS_PER_NODE


def judged_round(round, suspects=(), excluded=None, void=False):
    nobody = np.empty(0, dtype=np.int64)
    facts = None if void else RowFacts(nobody, np.empty(0), nobody, nobody, [])
    return Round(
        round,
        0.1,
        nobody,
        None,
        State(round, torch.zeros(1)),
        excluded=excluded or {},
        evidence=facts,
        suspects=list(suspects),
    )


def test_suspects_come_and_go():
    ledger = Ledger()
    ledger.add_new([50, 60, 70], 0)
    ledger.record_round(Received([50, 60, 70]), 0, None)
    assert ledger.record_evidence(judged_round(9, [2, 0])) == ([50, 70], [])
    assert ledger.record_evidence(judged_round(10, void=True)) == ([], [])
    assert ledger.record_evidence(judged_round(14, [1, 2])) == ([60], [50])
    assert [ledger.nodes[node].suspect_since for node in (50, 60, 70)] == [None, 14, 9]
    ledger.record_evidence(judged_round(15, [2], {2: "flagged since round 9"}))
    again = Ledger.from_dict(ledger.as_dict())
    assert again.nodes == ledger.nodes
    assert again.nodes[70].excluded == {"flagged since round 9": 1}
    assert (again.nodes[70].used, again.nodes[60].used) == (0, 1)


def test_a_ledger_from_before_there_were_suspects():
    old = {"5": {"number": 0, "since": 0, "invited": 3, "used": 3, "quarantined": None}}
    record = Ledger.from_dict(old).nodes[5]
    assert (record.suspect_since, record.excluded) == (None, {})
