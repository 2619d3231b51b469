"""Exact searches for the best subset of rows."""

import numpy as np
import pytest

import oracle
from fedro import kernels
from fedro.rules import parse_rule
from fedro.rules.subsets import least_diameter, least_variance


@pytest.mark.parametrize(("text", "n", "b"), [("mva", 60, 28), ("smea", 30, 12)])
def test_searches_that_cannot_end_are_refused(text: str, n: int, b: int) -> None:
    with pytest.raises(ValueError, match="use "):
        parse_rule(text, b=b)(np.random.default_rng(0).standard_normal((n, 50)))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["gaussian", "outliers", "alie"])
def test_exact_searches_at_the_papers_size(case: str) -> None:
    x, rng = oracle.CASES[case](26, 200, 11), np.random.default_rng(0)
    sq = kernels.distances(x).value
    for search, objective in (
        (least_diameter, oracle.diameter),
        (least_variance, oracle.variance),
    ):
        chosen = search(sq, 15)
        best = objective(x, chosen)
        outside = np.setdiff1d(np.arange(26), chosen)
        others = [np.append(np.delete(chosen, i), j) for i in range(15) for j in outside]
        others += [rng.permutation(26)[:15] for _ in range(300)]
        assert best <= min(objective(x, other) for other in others) * (1 + 1e-9)
