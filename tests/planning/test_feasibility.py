"""Which (n̂, b̂) are safe: the fast search against brute force from exact integers."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedro.planning.feasibility import BOUNDS, PlanningProblem, SampleSearch, tolerated_at
from fedro.planning.theory import divergence
from fedro.rules import parse_rule

ROUNDS, CONFIDENCES = (1, 10, 500), (0.5, 0.99, 0.99999)


def problem(
    clients: int,
    byzantine: int,
    rounds: int = 1,
    confidence: float = 0.99,
    bound: str = "exact",
    dropout: float = 0.0,
    retries: int = 0,
) -> PlanningProblem:
    draws = rounds + retries
    return PlanningProblem(clients, byzantine, draws, retries, dropout, confidence, bound)


def always(sampled: int, tolerated: int) -> bool:
    return True


@cache
def overruns(n: int, b: int, sampled: int) -> list[Fraction]:
    """P[more than k bad] for k = 0, 1, …, exactly."""
    ways = [math.comb(b, k) * math.comb(n - b, sampled - k) for k in range(sampled + 1)]
    total = math.comb(n, sampled)
    return [Fraction(sum(ways[k + 1 :]), total) for k in range(sampled + 1)]


def safe(n: int, b: int, sampled: int, k: int, rounds: int, p: float, bound: str) -> bool:
    """Is b̂ = k safe? Straight from the definitions, with nothing shared with the library."""
    if bound == "exact" or b == 0:
        bad = overruns(n, b, sampled)[k]
        return bad < 1 and rounds * math.log1p(-float(bad)) >= math.log(p) * (1 + 1e-13)
    if bound == "shifted" and (k >= b or k >= sampled):
        return True
    bad = k + 1 if bound == "shifted" else k
    enough = sampled * divergence(bad / sampled, b / n) >= math.log(rounds / (1 - p)) * (1 - 1e-14)
    return bad * n > b * sampled and enough


@pytest.mark.slow
@pytest.mark.parametrize("bound", BOUNDS)
def test_brute_force_on_small_cases(bound: str) -> None:
    """Every case of up to 24 clients, and every fifth of up to 40."""
    for n in range(1, 41):
        cases = list(itertools.product(range((n + 1) // 2), ROUNDS, CONFIDENCES))
        for b, rounds, p in cases if n <= 24 else cases[n % 5 :: 5]:
            case = problem(n, b, rounds, p, bound)
            works = []
            for sampled in range(1, n + 1):
                options = range((sampled + 1) // 2)
                expected = next(
                    (k for k in options if safe(n, b, sampled, k, rounds, p, bound)), None
                )
                assert tolerated_at(case, sampled) == expected, (n, b, sampled, rounds, p)
                works.append(expected is not None)
            search = SampleSearch(case, always)
            assert (search.first(), search.first_without_gaps()) == firsts(works), (n, b, rounds, p)


def firsts(works: list[bool]) -> tuple[int | None, int | None]:
    """The least size that works, and the least from which on all do."""
    first = next((size for size, fine in enumerate(works, 1) if fine), None)
    last_failure = max((size for size, fine in enumerate(works, 1) if not fine), default=0)
    return first, last_failure + 1 if last_failure < len(works) else None


def brute_first(case: PlanningProblem, good: Callable[[int, int], bool]) -> int | None:
    for sampled in range(1, case.population + 1):
        for k in range((sampled + 1) // 2):
            if case.holds(sampled, k):
                if good(sampled, k):
                    return sampled
                break
    return None


GOALS = ["trimmed_mean", "median", "krum", "mda", "nnm | geometric_median", "share"]


def goal(name: str, n: int, b: int, slack: float) -> Callable[[int, int], bool]:
    if name == "share":
        limit = b / n + (0.5 - b / n) * min(1, slack / 4)
        return lambda sampled, tolerated: tolerated <= limit * sampled
    kappa = parse_rule(name).kappa_formula()
    most = max(0.01, slack * kappa(n, b))
    return lambda sampled, tolerated: kappa(sampled, tolerated) <= most


@pytest.mark.slow
@given(
    st.integers(1, 250),
    st.floats(0, 0.4999),
    st.sampled_from(ROUNDS),
    st.sampled_from(CONFIDENCES),
    st.sampled_from(GOALS),
    st.sampled_from([1.05, 1.5, 2.0, 4.0]),
)
def test_smallest_sample_that_meets_a_goal(
    n: int, share: float, rounds: int, p: float, name: str, slack: float
) -> None:
    b = min(int(n * share), (n - 1) // 2)
    case, good = problem(n, b, rounds, p), goal(name, n, b, slack)
    assert SampleSearch(case, good).first() == brute_first(case, good)


@pytest.mark.slow
@given(
    st.integers(1, 60),
    st.floats(0, 0.4999),
    st.sampled_from(ROUNDS),
    st.sampled_from(CONFIDENCES),
    st.sampled_from(list(BOUNDS)),
    st.sampled_from([(0.01, 0), (0.1, 0), (0.3, 5), (0.02, 1), (0.6, 100)]),
)
def test_dropouts_against_brute_force(
    n: int, share: float, rounds: int, p: float, bound: str, trouble: tuple[float, int]
) -> None:
    b = min(int(n * share), (n - 1) // 2)
    case = problem(n, b, rounds, p, bound, *trouble)
    works = []
    for sampled in range(1, n + 1):
        options = range((sampled + 1) // 2)
        expected = next((k for k in options if case.holds(sampled, k)), None)
        assert tolerated_at(case, sampled) == expected
        works.append(expected is not None)
    search = SampleSearch(case, always)
    assert (search.first(), search.first_without_gaps()) == firsts(works)


@given(st.integers(3, 10**6), st.data())
def test_more_trouble_never_needs_less_tolerance(n: int, data: st.DataObject) -> None:
    b = data.draw(st.integers(0, (n - 1) // 2))
    more_bad = data.draw(st.integers(b, (n - 1) // 2))
    rounds = data.draw(st.integers(1, 10**6))
    more_rounds = data.draw(st.integers(rounds, 10**6))
    p = data.draw(st.floats(0.01, 0.9999))
    surer = data.draw(st.floats(p, 0.99999))
    bound = data.draw(st.sampled_from(list(BOUNDS)))
    sampled = data.draw(st.integers(1, min(n, 3000)))
    calm = tolerated_at(problem(n, b, rounds, p, bound), sampled)
    for worse in (
        problem(n, more_bad, rounds, p, bound),
        problem(n, b, more_rounds, p, bound),
        problem(n, b, rounds, surer, bound),
    ):
        needed = tolerated_at(worse, sampled)
        assert needed is None or (calm is not None and calm <= needed)


@given(st.integers(3, 400), st.data())
def test_the_exact_bound_is_never_worse_than_chernoff(n: int, data: st.DataObject) -> None:
    b = data.draw(st.integers(1, (n - 1) // 2))
    sampled = data.draw(st.integers(1, n))
    found = {bound: tolerated_at(problem(n, b, 500, 0.99, bound), sampled) for bound in BOUNDS}
    if found["literal"] is not None:
        assert found["shifted"] is not None
        assert found["shifted"] <= found["literal"]
    if found["shifted"] is not None:
        assert found["exact"] is not None
        assert found["exact"] <= found["shifted"]


@pytest.mark.parametrize(
    ("dropout", "retries"), [(0.0, 0), (0.0, 3), (0.05, 0), (0.1, 4), (0.3, 20)]
)
def test_monte_carlo_confirms_the_achieved_confidence(dropout: float, retries: int) -> None:
    rng = np.random.default_rng(7)
    n, b, rounds, runs = 60, 12, 20, 40_000
    case = problem(n, b, rounds, 0.6, "exact", dropout, retries)
    sampled = SampleSearch(case, always).first()
    assert sampled is not None
    tolerated = tolerated_at(case, sampled)
    assert tolerated is not None
    draws = rounds + retries
    bad = rng.hypergeometric(b, n - b, sampled, size=(runs, draws))
    answers = rng.binomial(sampled, 1 - dropout, size=(runs, draws))
    void = (answers <= 2 * tolerated).sum(axis=1)
    good = (bad <= tolerated).all(axis=1) & (void <= retries)
    expected = case.achieved(sampled, tolerated)
    assert 0.6 <= expected < 1
    error = math.sqrt(expected * (1 - expected) / runs)
    assert abs(good.mean() - expected) < 4.5 * error
