"""Mixers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedro.rules import parse_rule


@given(st.integers(0, 2**32), st.sampled_from(["nnm | trimmed_mean", "median", "mean", "krum"]))
@settings(max_examples=50, deadline=None)
def test_clip_step_bounds_what_any_majority_can_do(seed: int, rule: str) -> None:
    rng = np.random.default_rng(seed)
    last = rng.standard_normal(20)
    x = rng.standard_normal((9, 20)) * 10.0 ** rng.integers(-3, 9, size=(9, 1))
    got = parse_rule(f"clip_step(factor=2.5) | {rule}", b=3)(x, reference=last)
    longest = 2.5 * np.linalg.norm(last) * (1 + 1e-9)
    # each coordinate of a median may come from another row, so √9 in place of 1
    assert np.linalg.norm(got) <= longest * (3 if rule in ("median", "nnm | trimmed_mean") else 1)


def test_clip_step_needs_a_last_step() -> None:
    x = np.random.default_rng(1).standard_normal((9, 20))
    assert np.array_equal(parse_rule("clip_step | median", b=2)(x), parse_rule("median", b=2)(x))
