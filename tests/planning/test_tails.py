"""Exact tails, against exact fractions on small cases and scipy.stats on large ones."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedro.planning.tails import binomial_log_cdf, hypergeometric_log_cdf, hypergeometric_log_pmf


def log_fraction(value: Fraction) -> float:
    if value > Fraction(9, 10):
        return math.log1p(-float(1 - value))
    return math.log(value.numerator) - math.log(value.denominator)


@given(st.data())
def test_hypergeometric_equals_exact_fractions(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 120))
    b, m = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    k = data.draw(st.integers(-1, m))
    ways = sum(math.comb(b, i) * math.comb(n - b, m - i) for i in range(k + 1))
    got = hypergeometric_log_cdf(k, n, b, m)
    if ways == 0:
        assert got == -math.inf
    else:
        expected = log_fraction(Fraction(ways, math.comb(n, m)))
        assert got == pytest.approx(expected, rel=1e-11, abs=1e-300)


@given(st.integers(1, 80), st.integers(-1, 80), st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.9, 1.0]))
def test_binomial_equals_exact_fractions(n: int, k: int, p: float) -> None:
    q = Fraction(p)
    terms = (math.comb(n, i) * q**i * (1 - q) ** (n - i) for i in range(min(k, n) + 1))
    exact = sum(terms, Fraction(0))
    got = binomial_log_cdf(k, n, p)
    if exact == 0:
        assert got == -math.inf
    else:
        assert got == pytest.approx(log_fraction(exact), rel=1e-10, abs=1e-300)


@pytest.mark.parametrize("n", [10**4, 10**6, 10**9])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.45])
@pytest.mark.parametrize("drawn", [17, 600, 5000])
def test_large_populations_equal_scipy(n: int, share: float, drawn: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    b = int(n * share)
    mean, sigma = drawn * share, math.sqrt(drawn * share * (1 - share))
    for z in (-3, 0, 2, 5):
        k = int(mean + z * sigma)
        expected = stats.hypergeom.logcdf(k, n, b, drawn)
        # scipy's own large-population error is near 1e-6
        assert hypergeometric_log_cdf(k, n, b, drawn) == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_mass_sums_to_one_for_a_billion() -> None:
    n, b, m = 10**9, 10**8, 3 * 10**8
    mean = m * b // n
    total = math.fsum(
        math.exp(hypergeometric_log_pmf(mean + k, n, b, m)) for k in range(-30000, 30001, 1)
    )
    assert total == pytest.approx(1, rel=1e-10)
