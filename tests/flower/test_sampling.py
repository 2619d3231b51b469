"""Draws that stay as safe as planned, whoever is online; robust metrics; the ledger."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedro
from fake_flower import FIRST, FakeGrid, Time, small_plan
from fedro.flower.evaluation import flat, robust_mean, robust_metrics
from fedro.flower.inviting import drawn
from fedro.flower.ledger import MOST, Ledger
from fedro.flower.replies import Received
from fedro.flower.sampling import Draw, as_planned, online, safe_draw
from fedro.planning.tails import hypergeometric_log_cdf


@pytest.mark.parametrize("bound", ["exact", "shifted"])
@pytest.mark.parametrize("available", [0, 3, 8, 9, 12, 20, 31, 60, 100, 149, 150, 151, 160])
def test_every_draw_is_as_safe_as_planned(available, bound):
    plan = fedro.plan(clients=150, byzantine=15, rounds=500, bound=bound)
    draw = safe_draw(plan, available)
    bad = 15 + max(0, available - 150)
    if draw is None:
        assert available <= 60
        return
    assert 2 * draw.tolerated < draw.sampled <= min(plan.sampled, available)
    safe = hypergeometric_log_cdf(draw.tolerated, available, bad, draw.sampled)
    assert 500 * safe >= math.log(0.99) - 1e-9


def test_those_online_decide_and_strangers_count_as_bad():
    plan = small_plan()
    assert safe_draw(plan, 20) == Draw(20, 7, 2)
    assert safe_draw(plan, 5) == Draw(5, 5, 2)  # all are invited, and both bad ones are there
    assert safe_draw(plan, 4) is None
    assert safe_draw(plan, 21).tolerated == 3  # one that nobody planned for
    assert as_planned(plan, 19)
    assert not as_planned(plan, 21)
    spare = fedro.plan(clients=150, byzantine=15, rounds=500, available=100)
    assert all(as_planned(spare, n) for n in (100, 120, 150))
    assert not as_planned(spare, 80)


def test_node_ids_are_never_rounded():
    nodes = [2**64 - 1 - i for i in range(30)]
    found = drawn(0, 0, nodes, 10)
    assert len(set(found)) == 10
    assert set(found) <= set(nodes)
    assert drawn(0, 0, nodes, 10) == found != drawn(1, 0, nodes, 10)


def test_draws_are_uniform():
    counts = np.zeros(6)
    for round in range(3000):
        for node in drawn(7, round, range(6), 2):
            counts[node] += 1
    assert (abs(counts - 1000) < 4.5 * math.sqrt(1000 * 2 / 3)).all()


def test_the_wait_for_nodes_ends():
    time, grid = Time(), FakeGrid(3)
    nodes = online(grid, lambda n: n >= 4, 10.0, clock=time.clock)
    assert nodes == [FIRST, FIRST + 1, FIRST + 2]
    assert time.time == 10.0
    time = Time()
    assert len(online(grid, lambda n: n >= 3, 10.0, clock=time.clock)) == 3
    assert time.slept == []
    assert online(grid, lambda n: True, 10.0, {FIRST}) == [FIRST + 1, FIRST + 2]


def test_nodes_that_come_late_are_waited_for():
    class Late(FakeGrid):
        def get_node_ids(self):
            nodes = super().get_node_ids()
            if self.asked == 1:
                raise ConnectionError("not yet")
            return [*nodes, nodes[0]] if self.asked > 3 else nodes[:1]

    time = Time()
    assert len(online(Late(3), lambda n: n >= 3, 10.0, clock=time.clock)) == 3
    assert time.time == 3.0


@given(
    st.lists(st.floats(0, 1), min_size=3, max_size=12),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=2),
)
def test_liars_cannot_move_a_metric_past_honest_values(honest, lies):
    found = robust_mean([*honest, *lies], 2)
    if len(honest) + len(lies) <= 4:
        assert found is None
        return
    assert found.low <= found.value * (1 + 1e-12)
    assert found.value <= found.high * (1 + 1e-12)
    if len(honest) > 2 or not lies:
        assert min(honest) <= found.low
        assert found.high <= max(honest)


def test_metrics_of_few_are_left_out():
    replies = [{"acc": 0.8}, {"acc": 0.9}, {"acc": 1e300, "mine": 1.0}, {}]
    found = robust_metrics(replies, 1)
    assert {name: tuple(spread) for name, spread in found.items()} == {"acc": (0.9, 0.9, 0.9, 3)}
    assert flat(found) == {"acc": 0.9, "acc-low": 0.9, "acc-high": 0.9}
    assert robust_metrics(replies, 2) == {}


def test_the_ledger_counts_and_comes_back():
    ledger = Ledger()
    ledger.meet([5, 2**64 - 1], 0)
    ledger.meet([7, 5], 1)
    assert [ledger.number(node) for node in (5, 2**64 - 1, 7)] == [0, 1, 2]
    for round in range(3):
        found = Received([5, 7], missing={5: "did not answer"}, rejected={7: f"reason {round}"})
        assert ledger.note(found, round, 2) == ([7] if round == 1 else [])
    again = Ledger.from_dict(ledger.as_dict())
    assert again.entries == ledger.entries
    assert again.quarantined == {7}
    assert again.entries[7].quarantined == 2
    assert (again.entries[5].missing, again.entries[5].used) == ({"did not answer": 3}, 0)
    for round in range(3 * MOST):
        ledger.note(Received([7], rejected={7: f"story {round}"}), round, None)
    assert len(ledger.entries[7].rejected) == MOST + 1
    assert ledger.entries[7].refusals == 3 + 3 * MOST
