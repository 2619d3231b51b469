"""Who is flagged: the rate of false discoveries, the power, and what copies prove."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedro.server.evidence import Evidence, RowFacts
from fedro.server.suspects import (
    by_copies,
    certainly_byzantine,
    half_spread,
    judge,
    look_at,
    step_up,
    suspects,
)


def play(
    slopes,
    rounds=40,
    sampled=20,
    seed=0,
    noise=0.1,
    agree=0.3,
    copies=(),
    turn=None,
    ever=None,
):
    """Evidence of clients whose cosine is their slope times the agreement, plus noise.

    `copies` are clients that always send the same update; `turn` is (clients, round, new slope).
    `ever` gets all clients that were suspect after any round.
    """
    ever = set() if ever is None else ever
    rng, slopes = np.random.default_rng(seed), np.array(slopes, dtype=float)
    evidence = Evidence()
    for round_ in range(rounds):
        now = slopes.copy()
        if turn is not None and round_ >= turn[1]:
            now[list(turn[0])] = turn[2]
        clients = rng.choice(len(now), size=min(sampled, len(now)), replace=False)
        agreed = agree * rng.uniform(0.5, 1.5)
        cosine = now[clients] * agreed + noise * rng.normal(size=clients.size)
        group = sorted(set(clients.tolist()) & set(copies))
        facts = RowFacts(
            clients,
            np.clip(np.round(cosine, 4), -1, 1),
            np.arange(clients.size),
            np.arange(clients.size),
            [group] if len(group) > 1 else [],
        )
        evidence = look_at(evidence.add(facts), round_)
        ever |= set(suspects(evidence))
    return evidence


def honest(n, seed=0, spread=0.2):
    return np.random.default_rng(seed + 1000).normal(1.0, spread, size=n)


@pytest.mark.parametrize(
    "spread",
    [
        0.0,
        pytest.param(0.1, marks=pytest.mark.soak),
        0.25,
        pytest.param(0.4, marks=pytest.mark.soak),
    ],
)
def test_without_an_attack_hardly_any_run_flags_anybody(spread):
    """The promise: of 100 runs at most about 5 flag anybody, at any look."""
    flagged = 0
    for seed in range(60):
        ever = set()
        play(honest(50, seed, spread), rounds=120, seed=seed, noise=0.2, ever=ever)
        flagged += bool(ever)
    assert flagged <= 6  # P[Binomial(60, 5%) > 6] = 3%


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([-1.0, -0.5, 0.0, 2.5]), st.integers(1, 19))
def test_clients_that_work_against_the_others_are_found(seed, slope, bad):
    slopes = np.append(np.full(bad, slope), honest(50 - bad, seed, 0.1))
    found = set(suspects(play(slopes, rounds=80, sampled=30, seed=seed)))
    assert len(found & set(range(bad))) >= 0.9 * bad
    assert len(found - set(range(bad))) <= 0.1 * 50


def test_flagged_clients_can_clear_themselves():
    slopes = np.append(np.full(5, -1.0), honest(45))
    bad_until_20 = play(slopes, rounds=20, sampled=30)
    assert set(suspects(bad_until_20)) == set(range(5))
    cleared = play(slopes, rounds=300, sampled=30, turn=(range(5), 20, 1.0))
    assert suspects(cleared) == []


def test_clients_that_turn_late_are_found_by_the_recent_rounds():
    slopes = honest(50, spread=0.1)
    turned = play(slopes, rounds=240, sampled=30, turn=(range(5), 150, -1.0))
    assert set(range(5)) <= set(suspects(turned))


def test_small_differences_never_count_however_certain():
    slopes = np.append(np.full(5, 0.7), np.ones(45))
    assert suspects(play(slopes, rounds=2000, sampled=30, noise=0.02)) == []


@pytest.mark.parametrize("bad", [24, 25, 40])
def test_when_the_others_are_no_majority_nobody_is_named_wrongly_without_end(bad):
    """Beyond half of the clients nothing is promised, but the procedure ends."""
    play(np.append(np.full(bad, -1.0), np.ones(50 - bad)), rounds=60, sampled=30)


def test_too_few_clients_or_draws_are_not_judged():
    assert suspects(play([-1.0, 1, 1, 1, 1, 1, 1], rounds=100, sampled=7)) == []
    assert suspects(play(np.append(-1.0, np.ones(60)), rounds=9, sampled=30)) == []
    assert judge(Evidence()).at_least == 0


def test_a_lower_rate_flags_no_more():
    evidence = play(np.append(np.linspace(-1, 1, 20), honest(40)), rounds=30, sampled=30)
    numbers = [judge(evidence, fdr).flagged.sum() for fdr in (0.2, 0.05, 0.01, 1e-6)]
    assert numbers == sorted(numbers, reverse=True)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.5))
def test_step_up_is_benjamini_and_hochberg(p, level):
    p = np.array(p)
    best = 0
    for k in range(1, len(p) + 1):
        if (np.sort(p)[:k] <= level * k / len(p))[k - 1]:
            best = k
    assert step_up(p, level).sum() == best
    assert best == 0 or step_up(p, level)[np.argsort(p, kind="stable")[:best]].all()


def test_half_spread_of_a_normal_sample_is_its_deviation():
    values = np.random.default_rng(0).normal(3.0, 2.0, size=20_001)
    center, spread = half_spread(values)
    assert center == pytest.approx(3.0, abs=0.05)
    assert spread == pytest.approx(2.0, rel=0.03)
    outliers = np.append(values, np.full(5_000, -50.0))
    assert half_spread(outliers)[1] < 1.5 * 2.0


def test_copies_are_suspect_and_their_victim_is_not():
    """Clients 0 to 4 copy each other, and client 5 whenever it is drawn."""
    rng, evidence = np.random.default_rng(0), Evidence()
    for _ in range(60):
        clients = rng.choice(40, size=20, replace=False)
        liars = sorted(set(range(5)) & set(clients.tolist()))
        victim = [5] if 5 in clients and liars and rng.random() < 0.6 else []
        group = liars + victim
        facts = RowFacts(
            clients,
            np.full(20, 0.5),
            np.arange(20),
            np.arange(20),
            [group] if len(group) > 1 else [],
        )
        evidence = evidence.add(facts)
    assert np.flatnonzero(by_copies(evidence)).tolist() == [0, 1, 2, 3, 4]
    assert judge(evidence).at_least == 5  # of the six that are all copies of each other


def test_a_client_that_is_always_copied_is_not_the_one_that_is_flagged():
    """Clients 0 to 4 copy client 5 whenever it is drawn, and nobody else."""
    rng, evidence = np.random.default_rng(0), Evidence()
    for _ in range(300):
        clients = rng.choice(40, size=20, replace=False)
        group = sorted(set(range(6)) & set(clients.tolist())) if 5 in clients else []
        groups = [group] if len(group) > 1 else []
        evidence = evidence.add(
            RowFacts(clients, np.full(20, 0.5), np.arange(20), np.arange(20), groups)
        )
    assert np.flatnonzero(by_copies(evidence)).tolist() == [0, 1, 2, 3, 4]


def test_of_two_copies_nobody_knows_which():
    facts = RowFacts(np.arange(20), np.full(20, 0.5), np.arange(20), np.arange(20), [[3, 8]])
    evidence = Evidence()
    for _ in range(30):
        evidence = evidence.add(facts)
    assert suspects(evidence) == []
    assert judge(evidence).at_least == 1


@given(st.integers(0, 2**32))
def test_the_number_that_copies_prove_is_never_too_large(seed):
    """The smallest set of liars that explains all pairs, by brute force."""
    rng = np.random.default_rng(seed)
    n = 8
    honest_ones = set(rng.choice(n, size=4, replace=False).tolist())
    pairs = [
        (i, j, 1)
        for i, j in itertools.combinations(range(n), 2)
        if not {i, j} <= honest_ones and rng.random() < 0.5
    ]
    smallest = min(
        size
        for size in range(n + 1)
        for liars in itertools.combinations(range(n), size)
        if all(i in liars or j in liars for i, j, _ in pairs)
    )
    proved = certainly_byzantine(
        np.array(pairs, dtype=np.int64).reshape(-1, 3), np.zeros(n, dtype=bool)
    )
    assert proved <= smallest
