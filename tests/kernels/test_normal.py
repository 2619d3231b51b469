"""Normal numbers: their distribution, and what they must not depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedro import kernels
from fedro.kernels import GRID as BLOCK

SIZE = 1 << 20


def draw(seed: int, size: int = SIZE, backend: Any = "cpu", **shape: float) -> np.ndarray:
    out = np.empty((1, size), np.float32)
    kernels.normal(out, np.random.default_rng(seed), backend=backend, **shape)
    return out[0]


@pytest.mark.parametrize("backend", ["cpu", "generic"])
def test_moments_and_distribution(backend: Any) -> None:
    """Each number is within the range that holds 99.99% of all cases."""
    x = draw(1, backend=backend).astype(np.float64)
    for power, mean, deviation in ((1, 0, 1), (2, 1, 2**0.5), (3, 0, 15**0.5), (4, 3, 96**0.5)):
        assert abs((x**power).mean() - mean) < 4 * deviation / SIZE**0.5
    assert stats.kstest(x, "norm").pvalue > 1e-4


@pytest.mark.slow
def test_many_draws_are_as_normal_as_they_should_be() -> None:
    """P-values of 40 draws of a million are uniform themselves."""
    found = [stats.kstest(draw(seed).astype(np.float64), "norm").pvalue for seed in range(40)]
    assert stats.kstest(found, "uniform").pvalue > 1e-3


@pytest.mark.slow
def test_tails() -> None:
    beyond = np.zeros(4)
    for seed in range(64):
        x = np.abs(draw(seed))
        assert x.max() < 6.7
        beyond += [(x > limit).sum() for limit in (3.0, 4.0, 4.5, 5.0)]
    expected = 64 * SIZE * 2 * stats.norm.sf([3.0, 4.0, 4.5, 5.0])
    assert (np.abs(beyond - expected) < 4 * np.sqrt(expected)).all()


def test_neighbors_are_independent() -> None:
    """No correlation of numbers or of their squares, at distances that the making might show."""
    x = draw(2).astype(np.float64)
    for y, deviation in ((x, 1.0), (x * x - 1, 2.0)):
        for shift in (1, 2, 3, 8, 16, 32, 64, 1024, 2048, 4096, BLOCK):
            product = (y[:-shift] * y[shift:]).mean() / deviation
            assert abs(product) < 4.5 / (SIZE - shift) ** 0.5


def test_rows_and_seeds_differ() -> None:
    x = np.empty((6, BLOCK), np.float32)
    kernels.normal(x, np.random.default_rng(0), backend="cpu")
    correlation = np.corrcoef(np.vstack([x, draw(1, BLOCK), draw(2, BLOCK)]))
    assert np.abs(correlation - np.eye(8)).max() < 4.5 / BLOCK**0.5


def test_signs_and_sizes_are_independent() -> None:
    """A pair from one radius and angle: signs are even in all four quadrants, at every radius."""
    x, y = draw(3).reshape(-1, 2, 1024).transpose(1, 0, 2).reshape(2, -1)
    for far in (x * x + y * y > 9.0, x * x + y * y < 0.1, np.ones(x.size, dtype=bool)):
        counts = np.bincount((2 * (x > 0) + (y > 0))[far], minlength=4)
        assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("backend", ["cpu", "generic"])
def test_mean_and_deviation_are_honored(backend: Any) -> None:
    x = draw(4, backend=backend)
    shifted = draw(4, backend=backend, mean=3.0, std=0.25)
    np.testing.assert_allclose(shifted, 3.0 + 0.25 * x, rtol=1e-6, atol=1e-6)
    assert (draw(4, 5000, backend, mean=3.0, std=0.0) == 3.0).all()
    assert np.isfinite(draw(4, 5000, backend, std=1e37)).all()


def test_same_bits_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for count in ("1", "2", "5"):
        monkeypatch.setenv("FEDRO_THREADS", count)
        found.append(draw(5, 3 * BLOCK + 5))
    assert all((found[0] == other).all() for other in found[1:])
    assert not (found[0][:BLOCK] == found[0][BLOCK : 2 * BLOCK]).any()


def test_a_shorter_row_has_the_first_numbers() -> None:
    assert (draw(6, 5003)[:4999] == draw(6, 4999)).all()


@pytest.mark.parametrize("backend", ["cpu", "generic"])
def test_any_kind_of_matrix_and_only_the_picked_rows(backend: Any) -> None:
    kinds: list[Any] = [np.zeros((4, 5003), np.float32), np.zeros((4, 5003))]
    kinds += [np.zeros((5003, 4), np.float32).T, torch.zeros(4, 6000)[:, :5003]]
    kinds += [torch.zeros(4, 5003, dtype=torch.float64), torch.zeros(5003, 4).T]
    for out in kinds:
        kernels.normal(out, np.random.default_rng(7), rows=[2, 0], backend=backend)
        np.testing.assert_allclose(np.asarray(out), kinds[0], rtol=1e-5, atol=1e-6)
    assert (kinds[0][[1, 3]] == 0).all()
    assert (kinds[0][[0, 2]] != 0).all()
