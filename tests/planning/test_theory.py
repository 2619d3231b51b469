"""Every formula of the paper, against hand-computed values, brute force and its own claims."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedro.planning import theory
from fedro.planning.tails import hypergeometric_log_cdf
from fedro.planning.theory import ConvergenceProblem

share = st.floats(0.01, 0.99)


def test_divergence_by_hand() -> None:
    assert theory.divergence(0.5, 0.1) == pytest.approx(-0.5 * math.log(4 * 0.1 * 0.9))
    assert theory.divergence(0, 0.2) == pytest.approx(-math.log(0.8))
    assert theory.divergence(1, 0.2) == pytest.approx(-math.log(0.2))
    assert theory.divergence(0.3, 0.3) == 0
    assert theory.divergence(0.3, 0.0) == math.inf
    with pytest.raises(ValueError, match="alpha="):
        theory.divergence(1.2, 0.5)


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9])
def test_divergence_near_one_half(gap: float) -> None:
    assert theory.divergence(0.5, 0.5 - gap) == pytest.approx(2 * gap * gap, rel=1e-5)


@given(share, share)
def test_divergence_is_positive_and_convex_in_alpha(alpha: float, beta: float) -> None:
    assert theory.divergence(alpha, beta) >= -1e-15
    middle = theory.divergence((alpha + beta) / 2, beta)
    assert middle <= (theory.divergence(alpha, beta) + 0) / 2 + 1e-12


def test_paper_thresholds() -> None:
    assert theory.sample_threshold(0.1, 500, 0.99) == 26
    assert theory.sample_threshold(0.1, 1500, 0.99) == 29
    assert theory.optimal_threshold(0.1, 500, 0.99) == 369
    assert theory.optimal_threshold(0.2, 500, 0.99) == 186


def test_impossibility_bound_of_the_papers_experiment_says_little() -> None:
    assert theory.impossibility_bound(0.2, 500, 0.99) == pytest.approx(3.37, abs=0.01)
    with pytest.raises(ValueError, match="confidence"):
        theory.impossibility_bound(0.2, 500, 0.4)


@given(st.integers(20, 400), st.data())
def test_tail_bounds_enclose_the_exact_tail(n: int, data: st.DataObject) -> None:
    b = data.draw(st.integers(1, n // 2))
    m = data.draw(st.integers(2, n))
    count = data.draw(st.integers(1, m))
    alpha, beta = count / m, b / n
    tail = -math.expm1(hypergeometric_log_cdf(count - 1, n, b, m))
    assert tail <= theory.tail_upper(alpha, beta, m) * (1 + 1e-9) + 1e-15
    if beta < alpha < 1:
        assert tail >= theory.tail_lower(alpha, beta, m, n) - 1e-12


@given(st.integers(3, 60), st.data())
def test_lemma_1_is_sufficient(n: int, data: st.DataObject) -> None:
    b = data.draw(st.integers(1, (n - 1) // 2))
    sampled = data.draw(st.integers(1, n - 1))
    tolerated = data.draw(st.integers(0, sampled))
    rounds, p = data.draw(st.sampled_from([1, 10, 500])), data.draw(st.sampled_from([0.5, 0.99]))
    if theory.lemma1_holds(sampled, tolerated, n, b, rounds, p):
        safe = rounds * hypergeometric_log_cdf(tolerated, n, b, sampled)
        assert safe >= math.log(p)


def test_lemma_1_by_hand() -> None:
    assert theory.lemma1_holds(26, 12, 150, 15, 500, 0.99)
    assert not theory.lemma1_holds(26, 11, 150, 15, 500, 0.99)
    assert not theory.lemma1_holds(26, 13, 150, 15, 500, 0.99)  # half is not below half


def problem(rng: random.Random) -> ConvergenceProblem:
    clients = rng.randint(5, 1000)
    byzantine = rng.randint(0, (clients - 1) // 2)
    sampled = rng.randint(1, clients)
    return ConvergenceProblem(
        clients=clients,
        byzantine=byzantine,
        sampled=sampled,
        tolerated=max(0, min((sampled - 1) // 2, sampled - (clients - byzantine) + 1, byzantine)),
        rounds=rng.randint(1, 10**5),
        local_steps=rng.randint(1, 50),
        smoothness=10 ** rng.uniform(-2, 2),
        noise=10 ** rng.uniform(-3, 3),
        heterogeneity=10 ** rng.uniform(-3, 3),
        initial_gap=10 ** rng.uniform(-2, 3),
        kappa=rng.uniform(0, 3),
    )


def test_corrected_corollary_follows_from_theorem_1_and_the_printed_one_does_not() -> None:
    rng = random.Random(0)
    broken = 0
    for _ in range(4000):
        q = problem(rng)
        if q.absent < 0:
            continue
        exact = theory.theorem1_bound(q, theory.corollary_step(q))
        assert exact <= theory.corollary_bound(q) * (1 + 1e-9)
        broken += exact > theory.corollary_bound(q, as_printed=True) * (1 + 1e-9)
    assert broken > 100


def test_corollary_with_one_local_step_has_no_third_term() -> None:
    q = problem(random.Random(3))
    one = ConvergenceProblem(**{**vars(q), "local_steps": 1})
    assert theory.corollary_bound(one) == theory.corollary_bound(one, as_printed=True)
    assert theory.corollary_step(one) <= 1 / (36 * one.smoothness)


def test_theorem_1_refuses_steps_it_does_not_cover() -> None:
    q = problem(random.Random(1))
    with pytest.raises(ValueError, match="1/\\(16LK\\)"):
        theory.theorem1_bound(q, 1 / (15 * q.smoothness * q.local_steps))


def test_only_the_byzantine_term_survives_many_rounds() -> None:
    q = ConvergenceProblem(**{**vars(problem(random.Random(2))), "rounds": 10**15, "kappa": 0.5})
    assert theory.corollary_bound(q) == pytest.approx(q.byzantine_error, rel=1e-3)


def test_drift_by_hand() -> None:
    assert theory.drift_bound(10, 0.1, 2.0, 3.0) == pytest.approx(0.01 * (60 + 5400))
    assert theory.aggregation_error_bound(0.5, 4.0) == 2.0
