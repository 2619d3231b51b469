"""Intervals and verdicts over a few seeds."""

from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from fedro.paper.verdicts import binomial_p_value, interval, paired_differences


def test_interval_is_students() -> None:
    values = [0.1, 0.3, 0.2, 0.7]
    low, high = stats.t.interval(0.95, 3, fmean(values), stats.sem(values))
    assert interval(values) == pytest.approx((fmean(values), low, high))
    assert interval([0.4]).low == -np.inf


def test_interval_holds_the_truth_as_often_as_it_says() -> None:
    draws = np.random.default_rng(0).normal(1.0, 2.0, size=(2000, 3))
    held = fmean(each.low < 1.0 < each.high for each in map(interval, draws.tolist()))
    assert held == pytest.approx(0.95, abs=0.02)


def test_pairs_are_of_the_same_seed() -> None:
    rows = [
        {"seed": s, "attack": a, "accuracy": s + x} for s in (2, 1) for a, x in (("n", 0), ("f", 5))
    ]
    rows.append({"seed": 9, "attack": "f", "accuracy": 100})  # no partner
    assert paired_differences(rows, {"attack": "n"}, {"attack": "f"}) == {2: 5, 1: 5}


def test_chance_of_a_count() -> None:
    assert binomial_p_value(0, 5, 0.0) == 1.0
    assert binomial_p_value(5, 5, 1.0) == 1.0
    assert binomial_p_value(1, 5, 0.0) == 0.0
    assert binomial_p_value(5, 5, 0.1) == pytest.approx(1e-5)
