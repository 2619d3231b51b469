"""Rules that look for a center."""

import time

import numpy as np
import pytest
import torch

import oracle
from fedro import kernels
from fedro.rules import parse_rule
from rule_cases import (
    distance_to,
)


def test_fltrust_gives_no_trust_to_rows_without_a_direction() -> None:
    x = torch.ones(4, 4, dtype=torch.float64)
    x[3] = 1e-200
    trusted = torch.ones(4, dtype=torch.float64)
    assert torch.allclose(parse_rule("fltrust", b=1)(x, reference=trusted), trusted)


def test_a_majority_of_tiny_rows_does_not_drop_the_honest_from_fltrust() -> None:
    x = np.array([[1, 0.1, 0, 0], [1, -0.1, 0, 0], *3 * [[1e-11, 0, 1e-9, 0]]])
    trusted = np.array([1.0, 0, 0, 0])
    got = parse_rule("fltrust", b=3)(x, reference=trusted)
    assert np.allclose(got, parse_rule("fltrust")(x, reference=trusted))
    assert got[0] > 0.9


def test_a_nearly_optimal_row_does_not_cost_seconds() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((26, 3))
    units = x[1:] / np.linalg.norm(x[1:], axis=1)[:, None]
    x[1:] = units - units.mean(axis=0) * 0.999
    x[0] = 0.0
    start = time.process_time()
    got = parse_rule("geometric_median", b=5)(x)
    assert time.process_time() - start < 2
    assert oracle.geometric_median_residual(x, got) < 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_a_row_far_off_costs_the_geometric_median_little(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its distances are rounded by more than the others' size; a step on the data makes up."""
    monkeypatch.setattr(kernels, "MIN_COMPILED_SIZE", 0)
    x = np.random.default_rng(seed).standard_normal((9, 300)).astype(np.float32)
    x[0] *= 1e5
    got = parse_rule("geometric_median", b=1)(x)
    assert distance_to([oracle.geometric_median(x.astype(np.float64), 1)], got) < 1.5e-4
