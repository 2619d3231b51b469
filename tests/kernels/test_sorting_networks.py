"""Sorting networks, by the zero-one principle and at random."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedro.kernels.sorting_networks import batcher, network


def run(steps: np.ndarray, x: np.ndarray) -> np.ndarray:
    x = x.copy()
    for a, b, c, d in steps:
        pairs = [(a, b)] if c < 0 else [(a, c), (b, d), (b, c)]
        for low, high in pairs:
            x[low], x[high] = np.minimum(x[low], x[high]), np.maximum(x[low], x[high])
    return x


@pytest.mark.parametrize("n", range(1, 13))
def test_all_zero_one_inputs(n: int) -> None:
    x = np.array(list(itertools.product([0, 1], repeat=n))).T
    for low in range(n):
        for high in range(low + 1, n + 1):
            result = run(network(n, low, high), x)
            assert (result[low:high] == np.sort(x, 0)[low:high]).all()


@pytest.mark.parametrize("n", [26, 57, 64, 101, 301])
def test_random_inputs(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((n, 200))
    for low, high in ((0, n), (n // 2, n // 2 + 1), (n // 3, n - n // 3)):
        assert (run(network(n, low, high), x)[low:high] == np.sort(x, 0)[low:high]).all()


def test_size() -> None:
    assert [len(batcher(n)) for n in (4, 8, 16, 32)] == [5, 19, 63, 191]
    assert len(network(26, 11, 15)) < len(network(26, 0, 26)) < len(batcher(26))
