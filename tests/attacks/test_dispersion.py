"""Moments of updates and the distances between them."""

import math

import numpy as np
import pytest
import torch

from attack_cases import (
    deviation,
    make,
)
from fedro.attacks.dispersion import finite_moments


def test_deviation_is_stable() -> None:
    tiny = np.array([[1.0], [1.0 + 2**-23], [1.0 + 2**-22]], dtype=np.float32)  # neighbors
    wide = np.array([[1e30, 1e-30], [3e30, 3e-30], [2e30, 2e-30]], dtype=np.float32)
    for values in (tiny, wide):
        got = finite_moments(torch.from_numpy(values), np.arange(3))[1].numpy()
        assert np.allclose(got, deviation(values.astype(np.float64)), rtol=1e-6, atol=0)
    assert finite_moments(torch.ones(3, 2), np.arange(0))[1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("trained", [None, 300])
def test_dispersion_counts_finite_rows_and_aggregated_columns(
    trained: int | None, backend: str
) -> None:
    view = make(9, (0, 5), 400, trained=trained)
    view.updates[3, 399] = math.inf  # in the statistics, if there are any
    view.updates[6, 1] = math.nan
    dispersion, rows = view.dispersion, [1, 2, 4, 7, 8]
    assert dispersion.rows.tolist() == view.finite_honest.tolist() == rows
    g = view.updates[rows].double().numpy()
    mean, std = g.mean(0), g.std(0)
    assert np.allclose(dispersion.mean, mean, rtol=1e-5, atol=1e-6)
    assert np.allclose(dispersion.std, std, rtol=1e-5, atol=1e-6)
    assert view.honest_mean is dispersion.mean
    seen = g[:, :trained] - mean[:trained]
    assert np.allclose(
        dispersion.squared_distances, ((seen[:, None] - seen[None]) ** 2).sum(2), rtol=1e-5
    )
    assert np.allclose(dispersion.squared_deviations, (seen**2).sum(1), rtol=1e-5)
    assert dispersion.spread == pytest.approx(np.linalg.norm(std[:trained]), rel=1e-5)
    other = view.noise()
    for v in (dispersion.std, dispersion.mean, other):
        w = v[:trained].double().numpy()
        assert dispersion.squared_length(v) == pytest.approx(w @ w, rel=1e-5)
        assert np.allclose(
            dispersion.projections(v), seen @ w, atol=1e-5 * dispersion.spread * np.linalg.norm(w)
        )


def test_dispersion_of_no_finite_row() -> None:
    view = make(4, (0,))
    view.updates[1:] = math.nan
    assert view.dispersion.rows.size == 0
    assert view.dispersion.spread == 0.0
    assert not view.dispersion.mean.any()
