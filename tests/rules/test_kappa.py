"""The proved κ: no inputs break the inequality, and the lower bound is attained."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from fedro.rules import parse_rule
from fedro.rules.kappa import lower_bound, nnm
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


@pytest.mark.parametrize(("n", "b"), [(5, 1), (9, 3), (27, 9), (26, 11)])
def test_nnm_before_the_trimmed_mean_attains_its_kappa(n: int, b: int) -> None:
    honest = n - b
    x = np.zeros((n, 1))
    x[:b] = 1.0
    x[honest:] = -1.0 + 1e-9  # nearer to the zeros than the ones are
    output = parse_rule("nnm | trimmed_mean", b=b)(x)
    center, variance = x[:honest].mean(), x[:honest].var()
    ratio = float(output[0] - center) ** 2 / variance
    assert ratio == pytest.approx(4 * lower_bound(n, b), rel=1e-6)
    assert parse_rule("nnm | trimmed_mean", b=b).kappa(n) == pytest.approx(4 * lower_bound(n, b))


@pytest.mark.slow
@pytest.mark.parametrize("text", PROVED)
@given(st.data())
@settings(max_examples=100)
def test_kappa_inequality_with_fewer_byzantine_rows_than_tolerated(
    text: str, data: st.DataObject
) -> None:
    n = data.draw(st.integers(3, 9))
    b = 0 if text == "mean" else data.draw(st.integers(0, (n - 1) // 2))
    byzantine = data.draw(st.integers(0, b))
    d = data.draw(st.integers(1, 3))
    values = data.draw(st.lists(st.integers(-2, 2), min_size=n * d, max_size=n * d))
    x = np.array(values, dtype=np.float64).reshape(n, d)
    rule = make(text, b)
    kappa = rule.kappa(n, byzantine=byzantine)
    assert kappa is not None
    assert kappa <= rule.kappa(n) * (1 + 1e-12)
    ratio = oracle.kappa_ratio(rule(x), x, byzantine, rounding=1e-6)
    assert ratio <= kappa * (1 + 1e-5) + 1e-9


@pytest.mark.parametrize(("n", "b", "byzantine"), [(9, 3, 1), (27, 9, 3), (27, 9, 0), (26, 11, 5)])
def test_the_trimmed_mean_attains_its_kappa_with_fewer_byzantine_rows(
    n: int, b: int, byzantine: int
) -> None:
    """Of the honest rows b are 1, the others 0: trimming leaves zeros alone, which is the worst."""
    x = np.zeros((n, 1))
    x[:b] = 1.0
    rule = parse_rule("trimmed_mean", b=b)
    assert rule(x)[0] == 0.0
    honest = x[: n - byzantine]
    ratio = float(honest.mean() ** 2 / honest.var())
    assert ratio == pytest.approx(b / (n - byzantine - b))
    assert rule.kappa(n, byzantine=byzantine) == pytest.approx(ratio)


@pytest.mark.parametrize("text", ["trimmed_mean", "nnm | trimmed_mean", "krum", "arc | median"])
def test_kappa_grows_with_the_byzantine_rows_up_to_the_worst_case(text: str) -> None:
    rule = parse_rule(text, b=9)
    kappas = [rule.kappa(27, byzantine=byzantine) for byzantine in range(10)]
    assert kappas == sorted(kappas)
    assert kappas[-1] == rule.kappa(27)
    with pytest.raises(ValueError, match="byzantine=10: must be from 0 to 9"):
        rule.kappa(27, byzantine=10)


@given(st.data())
def test_nnm_moves_no_honest_row_far_from_the_honest_mean_on_average(data: st.DataObject) -> None:
    """(1/|S|)·Σ_S ‖y_i − x̄‖² ≤ (4f(n−f) + (b−f)(n−b))/(n−b)²·variance for f ≤ b Byzantine rows.

    With f = b this is 4b/(n−b)·variance.
    """
    n = data.draw(st.integers(3, 12))
    b = data.draw(st.integers(1, (n - 1) // 2))
    byzantine = data.draw(st.integers(0, b))
    d = data.draw(st.integers(1, 3))
    coordinates = st.one_of(st.integers(-3, 3), st.floats(-3, 3))
    values = data.draw(st.lists(coordinates, min_size=n * d, max_size=n * d))
    x = np.array(values, dtype=np.float64).reshape(n, d)
    honest = x[: n - byzantine]
    center = honest.mean(axis=0)
    variance = ((honest - center) ** 2).sum(axis=1).mean()
    mixed = oracle.nnm(x, b)[: n - byzantine]
    moved = ((mixed - center) ** 2).sum(axis=1).mean()
    assert moved <= nnm(n, b, 0.0, byzantine) * variance + 1e-12
