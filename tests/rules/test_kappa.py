"""The proved κ: no inputs break the inequality, and the lower bound is attained."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from fedro.rules import parse_rule
from fedro.rules.kappa import lower_bound
from rule_cases import (
    FINAL,
    PIPELINES,
    make,
)

PROVED = [text for text in [*FINAL, *PIPELINES] if make(text, 1).kappa(9) is not None]


@pytest.mark.slow
@pytest.mark.parametrize("text", PROVED)
@given(st.data())
@settings(max_examples=150)
def test_kappa_inequality_for_every_subset(text: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(3, 9))
    b = data.draw(st.integers(0, (n - 1) // 2))
    if text == "mean":
        b = 0
    case = data.draw(st.sampled_from([*oracle.CASES, "two_values"]))
    d = data.draw(st.integers(1, 3))
    if case == "two_values":
        values = data.draw(st.lists(st.integers(-2, 2), min_size=n * d, max_size=n * d))
        x = np.array(values, dtype=np.float64).reshape(n, d)
    else:
        x = oracle.CASES[case](n, d, b, seed=data.draw(st.integers(0, 10**6)))
    rule = make(text, b)
    kappa = rule.kappa(n)
    assert kappa is not None
    ratio = oracle.kappa_ratio(rule(x), x, b, rounding=1e-6)
    assert ratio <= kappa * (1 + 1e-5) + 1e-9


@pytest.mark.parametrize("text", ["mean", "norm_clip"])
def test_the_inequality_fails_for_what_is_not_robust(text: str) -> None:
    x = 1e-3 * np.array([[0.0], [1.0], [0.5], [0.2], [1e6]])
    ratio = oracle.kappa_ratio(make(text, 1)(x), x, 1)
    assert ratio > 10 * lower_bound(5, 1)


def test_zeros_and_ones_attain_the_lower_bound() -> None:
    for n, b in ((5, 2), (9, 3), (26, 11)):
        x = np.zeros((n, 1))
        x[:b] = 1.0
        assert parse_rule("trimmed_mean", b=b)(x)[0] == 0.0
    assert oracle.kappa_ratio(0.0, np.array([[1.0], [1], [0], [0], [0]]), 2) == pytest.approx(2.0)
