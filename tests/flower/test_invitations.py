"""Draws that stay as safe as planned, whoever is online."""

import math

import numpy as np
import pytest

import fedro
from fake_flower import FIRST, FakeGrid, Time, small_plan
from fedro.flower.invitations import draw_nodes, is_as_planned, safe_draw, wait_for_nodes
from fedro.flower.session import Draw
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
    assert is_as_planned(plan, 19)
    assert not is_as_planned(plan, 21)
    spare = fedro.plan(clients=150, byzantine=15, rounds=500, available=100)
    assert all(is_as_planned(spare, n) for n in (100, 120, 150))
    assert not is_as_planned(spare, 80)


def test_node_ids_are_never_rounded():
    nodes = [2**64 - 1 - i for i in range(30)]
    found = draw_nodes(0, 0, nodes, 10)
    assert len(set(found)) == 10
    assert set(found) <= set(nodes)
    assert draw_nodes(0, 0, nodes, 10) == found != draw_nodes(1, 0, nodes, 10)


def test_draws_are_uniform():
    counts = np.zeros(6)
    for round in range(3000):
        for node in draw_nodes(7, round, range(6), 2):
            counts[node] += 1
    assert (abs(counts - 1000) < 4.5 * math.sqrt(1000 * 2 / 3)).all()


def test_the_wait_for_nodes_ends():
    time, grid = Time(), FakeGrid(3)
    nodes = wait_for_nodes(grid, lambda n: n >= 4, 10.0, clock=time.clock)
    assert nodes == [FIRST, FIRST + 1, FIRST + 2]
    assert time.time == 10.0
    time = Time()
    assert len(wait_for_nodes(grid, lambda n: n >= 3, 10.0, clock=time.clock)) == 3
    assert time.slept == []
    assert wait_for_nodes(grid, lambda n: True, 10.0, {FIRST}) == [FIRST + 1, FIRST + 2]


def test_nodes_that_come_late_are_waited_for():
    class Late(FakeGrid):
        def get_node_ids(self):
            nodes = super().get_node_ids()
            if self.asked == 1:
                raise ConnectionError("not yet")
            return [*nodes, nodes[0]] if self.asked > 3 else nodes[:1]

    time = Time()
    assert len(wait_for_nodes(Late(3), lambda n: n >= 3, 10.0, clock=time.clock)) == 3
    assert time.time == 3.0
