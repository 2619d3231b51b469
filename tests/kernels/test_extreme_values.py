"""Numbers that an attacker may send: NaN, Inf, huge, tiny, and all scales at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reference_kernels as reference
from fedro import kernels

everywhere = pytest.mark.parametrize("backend", ["numba", "torch"])
N, B, D = 11, 4, 9000


def honest(dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((N, D)).astype(dtype)


@everywhere
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 255, 256, 8191, 8192, D - 1])
def test_one_bad_number_is_found_and_harms_no_other_row(
    bad: float, place: int, backend: Any
) -> None:
    x = honest()
    x[3, place], x[7, 0] = bad, bad
    good = np.delete(np.arange(N), [3, 7])
    value, finite = kernels.distances(x, backend=backend)
    assert (np.flatnonzero(finite) == good).all()
    np.testing.assert_allclose(value[np.ix_(good, good)], reference.distances(x[good]), rtol=1e-6)
    assert np.isinf(value[3, good]).all()
    assert np.isinf(value[good, 7]).all()
    for result in (
        kernels.facts(x, backend=backend).finite,
        kernels.combine(x, np.ones(N), backend=backend).finite,
        kernels.blend(x, np.ones(N), backend=backend).finite,
        kernels.blend(x, np.ones(N), np.ones(D), plus=(1.0, x[3]), backend=backend).finite,
        kernels.moments(x, backend=backend).finite,
        kernels.geometry(x, backend=backend).finite,
        kernels.band(x, B, N - B, backend=backend).finite,
        kernels.band(x, mixing=[[0, 1, 2]] * 3, backend=backend).finite,
    ):
        assert (np.flatnonzero(result) == good).all()
    mean, std, finite = kernels.moments(x, rows=good, backend=backend)
    assert finite.all()
    np.testing.assert_allclose((mean, std), reference.moments(x[good]), rtol=2e-6, atol=1e-6)
    assert np.isnan(kernels.geometry(x, backend=backend).sq).all()
    result = kernels.blend(x, np.ones(N), backend=backend)
    assert np.isnan([*result.dots, result.own]).all()
    value = kernels.geometry(x, rows=good, backend=backend).sq
    np.testing.assert_allclose(value, reference.geometry(x[good]), rtol=1e-6)
    value, finite = kernels.band(x, B - 2, len(good) - B + 2, rows=good, backend=backend)
    assert finite.all()
    np.testing.assert_allclose(value, reference.band(x[good], 2, 7), atol=1e-6)


@everywhere
@pytest.mark.parametrize("n", [1, 2])
def test_bad_numbers_in_one_or_two_rows(n: int, backend: Any) -> None:
    x = honest()[:n].copy()
    x[0, 5000] = np.nan
    assert (kernels.distances(x, backend=backend).finite == [False, True][:n]).all()


@everywhere
@pytest.mark.parametrize("big", [1e20, 1e38, 3.4e38])
def test_huge_rows(big: float, backend: Any) -> None:
    x = honest()
    x[:2], x[2:4] = big, -big
    x[3, ::7] = 1e-30
    value, finite = kernels.distances(x, backend=backend)
    assert finite.all()
    np.testing.assert_allclose(value, reference.distances(x), rtol=1e-6)
    for call, expected in (
        (kernels.band(x, B, N - B, backend=backend), reference.band(x, B, N - B)),
        (kernels.band(x, 0, N, backend=backend), reference.band(x, 0, N)),
        (kernels.band(x, nearest=N - B, backend=backend), reference.nearest(x, N - B)),
        (kernels.combine(x, np.full(N, 1 / N), backend=backend), reference.wide(x).mean(0)),
    ):
        assert call.finite.all()
        assert np.isfinite(call.value).all()
        np.testing.assert_allclose(call.value, expected, rtol=1e-6, atol=1e-6 + 1e-14 * big)
    std, finite = kernels.moments(x, backend=backend)[1:]
    assert finite.all()
    np.testing.assert_allclose(std, reference.moments(x)[1], rtol=1e-6)
    result = kernels.geometry(x, backend=backend)
    assert result.finite.all()
    np.testing.assert_allclose(result.sq[:N, :N], reference.distances(x), rtol=1e-6)
    mixing = [np.roll(np.arange(N), k)[: N - B] for k in range(N)]
    value = kernels.band(x, B, N - B, mixing=mixing, backend=backend).value
    expected = reference.band(x, B, N - B, mixing)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6 * big)


@everywhere
def test_a_huge_majority(backend: Any) -> None:
    x = np.full((4, D), 3.4e38, np.float32)
    x[0] = -3.4e38
    for count in (1, 2, 3):
        value = kernels.band(x, nearest=count, backend=backend).value
        np.testing.assert_allclose(value, x[1], rtol=1e-6)
    np.testing.assert_allclose(kernels.band(x, 1, 3, backend=backend).value, x[1], rtol=1e-6)


@everywhere
@pytest.mark.parametrize(
    "scale", [1e-45, 1e-40, 1e-30, 1e-25, 1e-20, 1e-15, 1e-5, 1e15, 1e18, 1e30]
)
def test_distances_at_every_scale(scale: float, backend: Any) -> None:
    x = (honest(np.float64) * scale).astype(np.float32)
    value = kernels.distances(x, backend=backend).value
    np.testing.assert_allclose(value, reference.distances(x), rtol=1e-6, atol=0)
    value, expected = kernels.geometry(x, backend=backend).sq, reference.geometry(x)
    np.testing.assert_allclose(value[:N, :N], expected[:N, :N], rtol=1e-6, atol=0)
    if scale > 1e-40:  # below that the mean has few bits
        np.testing.assert_allclose(value, expected, rtol=2e-6, atol=0)


@everywhere
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-5, 1e18, 1e30])
def test_products_at_every_scale(scale: float, backend: Any) -> None:
    x = (honest(np.float64) * scale).astype(np.float32)
    wide, weights = reference.wide(x), np.linspace(-1, 1, N)
    for other in (x[1], None):
        result = kernels.blend(x, weights, other, plus=(0.5, x[2]), backend=backend)
        value = weights @ wide + 0.5 * wide[2]
        r = value if other is None else wide[1]
        np.testing.assert_allclose(result.value, value, rtol=1e-6, atol=1e-6 * scale)
        np.testing.assert_allclose(result.own, value @ r, rtol=1e-5)
        size = np.linalg.norm(wide, axis=1) * np.linalg.norm(r)
        assert (np.abs(result.dots - wide @ r) <= 1e-6 * size).all()


@everywhere
def test_distances_of_mixed_scales(backend: Any) -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((N, D)) * 10.0 ** rng.uniform(-40, 37, (N, D))).astype(np.float32)
    x[:, ::2] = x[0, ::2]  # large and equal: the difference is exactly zero
    x[5:] = x[4] + np.float32(1e-38)
    value = kernels.distances(x, backend=backend).value
    np.testing.assert_allclose(value, reference.distances(x), rtol=1e-6, atol=0)
    value, expected = kernels.geometry(x, backend=backend).sq[:N, :N], reference.distances(x)
    np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6 * expected.max())


@everywhere
def test_products_of_mixed_scales(backend: Any) -> None:
    x = honest()
    x[1:] *= np.float32(1e-25)
    result, wide = kernels.blend(x, np.ones(N), x[1], backend=backend), reference.wide(x)
    expected = wide @ wide[1]
    np.testing.assert_allclose(result.dots, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("equal", [2, 3])
def test_equal_rows_cost_no_further_pass(equal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = honest()
    x[:equal] = x[0]
    for name in ("distances", "facts"):
        monkeypatch.setattr(f"fedro.kernels.numba_backend.{name}", None)
    result = kernels.geometry(x, backend="numba").sq
    assert (result[:equal, :equal] == 0).all()
    np.testing.assert_allclose(result, reference.geometry(x), rtol=1e-6)
    x[5, 7] = np.nan  # nor do rows that are about to be dropped
    kernels.geometry(x, backend="numba")
    kernels.blend(x, np.ones(N), backend="numba")


@everywhere
def test_geometry_of_a_crowd_far_from_zero(backend: Any) -> None:
    """The deviation is a few units in the last place of the mean."""
    x = (1e5 + 0.1 * honest(np.float64)).astype(np.float32)
    result = kernels.geometry(x, backend=backend)
    wide = reference.wide(x)
    center = result.mean.astype(np.float64) + result.std
    within = np.sqrt(D) * 0.5 * np.spacing(np.float32(1e5))  # by which the mean is rounded
    expected = np.linalg.norm(wide - wide.mean(0) - wide.std(0), axis=1)
    assert np.abs(np.linalg.norm(wide - center, axis=1) - expected).max() <= within
    if backend == "numba":  # it takes no part in the distances
        np.testing.assert_allclose(np.sqrt(result.sq[-1, :-1]), expected, rtol=1e-4)


@everywhere
@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e-5, 1e5, 1e30])
def test_deviations_at_every_scale(scale: float, backend: Any) -> None:
    x = (honest(np.float64) * scale).astype(np.float32)
    std = kernels.moments(x, backend=backend).std
    np.testing.assert_allclose(std, reference.moments(x)[1], rtol=1e-6, atol=1e-45)


@everywhere
def test_small_updates_beside_large_weights(backend: Any) -> None:
    x = (1.0 + 1e-5 * honest(np.float64)).astype(np.float32)
    std = kernels.moments(x, backend=backend).std
    np.testing.assert_allclose(std, reference.moments(x)[1], rtol=1e-6)
    value = kernels.distances(x, backend=backend).value
    np.testing.assert_allclose(value, reference.distances(x), rtol=1e-6)
    value = kernels.geometry(x, backend=backend).sq
    np.testing.assert_allclose(value[:N, :N], reference.distances(x), rtol=1e-6)


@everywhere
def test_zero_weight_skips_the_row(backend: Any) -> None:
    x = honest()
    x[0] = np.nan
    weights = np.r_[0.0, np.full(N - 1, 0.1)]
    value, finite = kernels.combine(x, weights, backend=backend)
    assert finite.all()
    assert np.isfinite(value).all()
    assert (kernels.combine(x, np.zeros(N), backend=backend).value == 0).all()


def test_zeros_and_ones_give_zero() -> None:
    x = np.zeros((N, D), np.float32)
    x[:B] = 1
    assert (kernels.band(x, B, N - B, backend="numba").value == 0).all()
