"""What a round shows of each client, and its sums."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedro.server.evidence import (
    SUMS,
    Evidence,
    RowFacts,
    components,
    copy_groups,
    next_look,
    observe,
    places,
)
from fedro.server.state import State


def rows(n=9, d=400, seed=0):
    return torch.tensor(np.random.default_rng(seed).normal(size=(n, d)), dtype=torch.float32)


def observed(updates, aggregate=None, picked=None, clients=None):
    n = len(updates)
    picked = np.arange(n) if picked is None else np.array(picked)
    clients = np.arange(n) + 100 if clients is None else np.array(clients)
    return observe(updates, picked, updates.mean(0) if aggregate is None else aggregate, clients)


def test_cosines_and_places_are_those_of_the_definition():
    updates = rows()
    aggregate = updates.mean(0)
    facts = observed(updates, aggregate, picked=[8, 2, 5])
    x, a = updates.double().numpy()[[8, 2, 5]], aggregate.double().numpy()
    cosine = x @ a / np.linalg.norm(x, axis=1) / np.linalg.norm(a)
    assert facts.clients.tolist() == [108, 102, 105]
    assert np.allclose(facts.cosine, cosine, atol=1e-4)
    assert np.array_equal(facts.cosine, np.round(facts.cosine, 4))
    assert np.array_equal(np.argsort(facts.norm), np.argsort(np.linalg.norm(x, axis=1)))
    assert np.array_equal(np.argsort(facts.distance), np.argsort(np.linalg.norm(x - a, axis=1)))
    assert RowFacts.from_dict(json.loads(json.dumps(facts.as_dict()))).as_dict() == facts.as_dict()


@given(st.integers(0, 2**32), st.floats(1e-12, 1e12))
def test_the_scale_of_updates_does_not_matter(seed, scale):
    updates = rows(seed=seed)
    updates[3] = updates[7]
    large = (updates.double() * scale).to(torch.float64)
    one, two = observed(updates.double()), observed(large)
    assert one.copies == two.copies == [[103, 107]]
    assert np.abs(one.cosine - two.cosine).max() <= 1e-4
    assert np.array_equal(one.norm, two.norm)


def test_a_zero_aggregate_and_zero_rows_say_nothing():
    updates = rows()
    assert (observed(updates, torch.zeros(400)).cosine == 0).all()
    updates[[1, 4]] = 0
    facts = observed(updates)
    assert facts.cosine[[1, 4]].tolist() == [0, 0]
    assert facts.copies == [[101, 104]]


def test_copies_are_found_and_nothing_else():
    updates = rows(30)
    assert observed(updates).copies == []
    updates[[3, 9, 20]] = updates[3].clone()
    updates[[5, 6]] = -updates[1]
    updates[7] = updates[8] * (1 + 1e-5)  # nearly
    updates[11] = updates[12] + 0.1 * rows(1)[0]  # not nearly
    updates[14] = -updates[13]  # of the same length
    assert observed(updates).copies == [[103, 109, 120], [105, 106], [107, 108]]


def test_rows_that_are_all_equal_are_no_copies():
    """Clients with the same data and full batches: then nothing tells them apart."""
    assert observed(rows(1).expand(9, -1).clone()).copies == []


def test_copies_in_small_differences_count():
    """Updates that are all close to each other, as with one step on nearly the same data."""
    base, noise = rows(1), rows(20, seed=1)
    updates = base + 1e-2 * noise
    updates[4] = updates[15]
    assert observed(updates).copies == [[104, 115]]


@given(st.integers(0, 2**32), st.integers(2, 25))
def test_copies_are_those_of_a_comparison_of_all_pairs(seed, n):
    rng = np.random.default_rng(seed)
    updates = rows(n, d=30, seed=seed)
    for _ in range(rng.integers(0, 4)):
        first, second = rng.integers(n, size=2)
        updates[first] = updates[second]
    x = updates.double().numpy()
    squared = ((x[:, None] - x[None]) ** 2).sum(-1)
    expected = [group.tolist() for group in components(squared == 0) if group.size > 1]
    if sum(map(len, expected)) > n - 3:
        return  # hardly any other rows to compare with
    norms = (x**2).sum(1)
    assert [g.tolist() for g in copy_groups(updates, np.arange(n), norms)] == expected


def test_places():
    assert places(np.array([3.0, 1.0, 1.0, 9.0])).tolist() == [2, 0, 0, 3]


def test_sums_are_plain_sums_for_each_client():
    first = RowFacts(
        np.array([4, 1, 0]), np.array([0.5, 0.2, -0.4]), np.arange(3), np.arange(3), [[0, 4]]
    )
    second = RowFacts(np.array([4, 2]), np.array([0.1, 0.3]), np.arange(2), np.arange(2), [])
    evidence = Evidence().add(first).add(second)
    assert (evidence.rounds, evidence.clients) == (2, 5)
    total = dict(zip(SUMS, evidence.total, strict=True))
    assert total["draws"].tolist() == [1, 1, 1, 0, 2]
    assert np.allclose(total["signal"], [0.04, 0.04, 0.04, 0, 0.08])
    assert np.allclose(total["agreement"], [-0.08, 0.04, 0.06, 0, 0.1 + 0.02])
    assert total["copied"].tolist() == [1, 0, 0, 0, 1]
    assert evidence.pairs.tolist() == [[0, 4, 1]]


def test_windows_move_at_looks_and_flags_remember_their_round():
    facts = RowFacts(np.array([0, 1]), np.array([0.5, 0.5]), np.arange(2), np.arange(2), [])
    evidence = Evidence()
    for _ in range(next_look(0) - 1):
        evidence = evidence.add(facts)
        assert not evidence.is_look
    evidence = evidence.add(facts)
    assert evidence.is_look
    evidence = evidence.after_look(np.array([False, True]), round=9)
    assert evidence.flagged.tolist() == [-1, 9]
    assert evidence.recent[0].tolist() == [10, 10]
    evidence = evidence.add(facts).after_look(np.array([True, True]), round=20)
    assert evidence.flagged.tolist() == [20, 9]
    assert evidence.recent[0].tolist() == [1, 1]
    assert evidence.total[0].tolist() == [11, 11]
    assert evidence.after_look(np.array([True, False]), round=30).flagged.tolist() == [20, -1]


@pytest.mark.parametrize("rounds", [0, 1, 14])
def test_a_checkpoint_holds_the_evidence(rounds):
    evidence = Evidence()
    for i in range(rounds):
        facts = RowFacts(
            np.array([i, 20]), np.array([0.1, 0.5]), np.arange(2), np.arange(2), [[i, 20]]
        )
        evidence = evidence.add(facts)
        if evidence.is_look:
            evidence = evidence.after_look(np.arange(evidence.clients) == 3, i)
    state = State(rounds, torch.zeros(2), evidence=evidence)
    again = State.from_tensors(rounds, state.tensors()).evidence
    for name in ("rounds", "looks", "total", "recent", "current", "pairs", "flagged"):
        assert np.array_equal(getattr(again, name), getattr(evidence, name)), name


def test_looks_are_further_apart_later():
    assert [next_look(i) for i in range(8)] == [10, 15, 22, 33, 50, 75, 107, 139]
