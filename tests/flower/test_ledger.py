"""The ledger counts what each node did, and comes back from a checkpoint."""

from fedro.flower.ledger import MAX_REASONS_PER_NODE, Ledger
from fedro.flower.replies import Received


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
