"""Both back ends against the definitions, for all kinds of input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import reference_kernels as reference
from fedro import kernels

BACKENDS = ["numba", "torch"]
SIZES = [(n, d) for n in (1, 2, 3, 5, 11, 26, 57) for d in (1, 7, 255, 256, 257)]
SIZES += [(26, 10_000), (101, 257), (301, 257), (5, 20_000)]
TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}

everywhere = pytest.mark.parametrize("backend", BACKENDS)


def normal(n: int, d: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(n * 1000 + d).standard_normal((n, d)).astype(dtype)


def lists(n: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    return np.stack([rng.permutation(n)[:count] for _ in range(n)])


def close(value: Any, expected: np.ndarray, dtype: str = "float32") -> None:
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(reference.wide(value), expected, rtol=tolerance, atol=tolerance)


@everywhere
@pytest.mark.parametrize(("n", "d"), SIZES)
def test_every_primitive_follows_its_definition(n: int, d: int, backend: Any) -> None:
    x = normal(n, d)
    before, b, weights = x.copy(), (n - 1) // 3, np.linspace(-1, 1, n)
    value, finite = kernels.distances(x, backend=backend)
    np.testing.assert_allclose(value, reference.distances(x), rtol=1e-5, atol=1e-12)
    assert finite.all()
    assert finite.shape == (n,)
    close(kernels.combine(x, weights, backend=backend).value, weights @ reference.wide(x))
    check_blend(x, weights, backend)
    close(np.stack(kernels.moments(x, backend=backend)[:2]), reference.moments(x))
    result = kernels.geometry(x, backend=backend)
    close(np.stack(result[:2]), reference.moments(x))
    np.testing.assert_allclose(result.sq, reference.geometry(x), rtol=1e-5, atol=1e-7)
    assert result.finite.all()
    assert result.finite.shape == (n,)
    close(kernels.band(x, b, n - b, backend=backend).value, reference.band(x, b, n - b))
    near = kernels.band(x, nearest=n - b, backend=backend).value
    close(near, reference.nearest(x, n - b))
    mixing = lists(n, n - b)
    value = kernels.band(x, b, n - b, mixing=mixing, backend=backend).value
    close(value, reference.band(x, b, n - b, mixing))
    assert (x == before).all()


def check_blend(x: Any, weights: Any, backend: Any, dtype: str = "float32") -> None:
    w, r = reference.wide(x), np.cos(np.arange(x.shape[1])).astype(np.float32)
    for other, plus in (r, None), (None, None), (r, (0.3, 1 - r)), (None, (-2.0, r)):
        result = kernels.blend(x, weights, other, plus=plus, backend=backend)
        value = weights @ w + (0.0 if plus is None else plus[0] * plus[1].astype(float))
        close(result.value, value, dtype)
        along = value if other is None else r.astype(float)
        scale = np.abs(w) @ np.abs(along) + np.abs(value) @ np.abs(along)
        assert (np.abs(result.dots - w @ along) <= 1e-6 * scale).all()
        assert abs(result.own - value @ along) <= 1e-6 * scale.max()
        assert result.finite.all()


@everywhere
@pytest.mark.parametrize("n", [2, 3, 5, 11, 26, 57, 101, 301])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_nearest_values(n: int, count: int, backend: Any) -> None:
    count = min(count, n)
    x = np.random.default_rng(n).integers(-5, 6, (n, 300)).astype(np.float32)  # many ties
    value = kernels.band(x, nearest=count, backend=backend).value
    close(value, reference.nearest(x, count))


@everywhere
@pytest.mark.parametrize("n", [1, 2, 3, 26, 57, 101, 301])
def test_single_order_statistics_are_exact(n: int, backend: Any) -> None:
    x = normal(n, 300)
    for rank in {0, n // 3, n // 2, n - 1}:
        value = kernels.band(x, rank, rank + 1, backend=backend).value
        assert (value == np.sort(x, 0)[rank]).all()


@everywhere
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_tensors_keep_kind_and_type(dtype: str, backend: Any) -> None:
    x = torch.from_numpy(normal(11, 9000)).to(getattr(torch, dtype))
    before, weights = x.clone(), np.arange(11) / 11
    for value, expected in (
        (kernels.combine(x, weights, backend=backend).value, weights @ reference.wide(x)),
        *zip(kernels.moments(x, backend=backend)[:2], reference.moments(x), strict=True),
        *zip(kernels.geometry(x, backend=backend)[:2], reference.moments(x), strict=True),
        (kernels.band(x, 3, 8, backend=backend).value, reference.band(x, 3, 8)),
        (kernels.band(x, nearest=8, backend=backend).value, reference.nearest(x, 8)),
    ):
        assert isinstance(value, torch.Tensor)
        assert value.dtype == x.dtype
        close(value, expected, dtype)
    assert torch.equal(x, before)
    value = kernels.distances(x, backend=backend).value
    np.testing.assert_allclose(value, reference.distances(x), rtol=1e-6)
    value = kernels.geometry(x, backend=backend).sq
    np.testing.assert_allclose(value, reference.geometry(x), rtol=max(TOLERANCE[dtype], 1e-6))
    check_blend(x, weights, backend, dtype)


@everywhere
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_arrays_keep_kind_and_type(dtype: str, backend: Any) -> None:
    x = normal(11, 9000, dtype)
    x.flags.writeable = False
    for value, expected in (
        (kernels.band(x, 3, 8, backend=backend).value, reference.band(x, 3, 8)),
        *zip(kernels.moments(x, backend=backend)[:2], reference.moments(x), strict=True),
    ):
        assert isinstance(value, np.ndarray)
        assert value.dtype == x.dtype
        close(value, expected, np.dtype(dtype).name)


def layouts() -> dict[str, Any]:
    x = normal(11, 9000)
    padded, reverse = np.full((11, 9008), np.nan, np.float32), x[::-1, ::-1].copy()
    padded[:, 3:9003] = x
    odd = np.frombuffer(b"\0" + x.tobytes(), dtype=np.uint8)[1:].view(np.float32).reshape(x.shape)
    return {
        "Fortran": np.asfortranarray(x),
        "padded rows": padded[:, 3:9003],
        "every other row": np.repeat(x, 2, 0)[::2],
        "every other column": np.repeat(x, 2, 1)[:, ::2],
        "backward": reverse[::-1, ::-1],
        "unaligned": odd,
        "transposed tensor": torch.from_numpy(x.T.copy()).T,
        "padded tensor": torch.from_numpy(padded)[:, 3:9003],
        "tensor with gradient": torch.from_numpy(x.copy()).requires_grad_(),
    }


@everywhere
@pytest.mark.parametrize("name", list(layouts()))
def test_any_layout_gives_the_same_bits(name: str, backend: Any) -> None:
    plain, x, mixing = normal(11, 9000), layouts()[name], lists(11, 7)
    for call in (
        lambda x: kernels.distances(x, backend=backend).value,
        lambda x: kernels.band(x, 3, 8, mixing=mixing, backend=backend).value,
        lambda x: kernels.combine(x, np.arange(11) / 11, backend=backend).value,
        lambda x: kernels.blend(x, np.arange(11) / 11, backend=backend).dots,
        lambda x: kernels.blend(x, np.arange(11) / 11, np.ones(9000), backend=backend).value,
        lambda x: kernels.moments(x, backend=backend).std,
        lambda x: kernels.geometry(x, backend=backend).std,
        lambda x: kernels.geometry(x, backend=backend).sq,
        lambda x: kernels.facts(x, np.ones(9000), backend=backend).gaps,
    ):
        assert (np.asarray(call(x)) == call(plain)).all()


@everywhere
def test_one_equal_row_broadcast(backend: Any) -> None:
    x = np.broadcast_to(normal(1, 9000), (7, 9000))
    assert (kernels.band(x, 2, 5, backend=backend).value == x[0]).all()
    assert (kernels.distances(x, backend=backend).value == 0).all()


@everywhere
def test_rows_scale_and_ragged_lists(backend: Any) -> None:
    x, rows = normal(26, 9000), np.array([25, 3, 4, 9, 0, 11, 7])
    scale, mixing = np.linspace(0.1, 1, 7), [[0, 1, 2], [3, 4, 5], [6]]
    value = kernels.band(x, 1, 2, rows=rows, scale=scale, mixing=mixing, backend=backend).value
    close(value, reference.band(x[rows], 1, 2, mixing, scale))
    value = kernels.distances(x, rows=rows, backend=backend).value
    np.testing.assert_allclose(value, reference.distances(x[rows]), rtol=1e-6)
    result = kernels.moments(x, rows=rows, backend=backend)
    close(np.stack(result[:2]), reference.moments(x[rows]))
    value = kernels.geometry(x, rows=rows, backend=backend).sq
    np.testing.assert_allclose(value, reference.geometry(x[rows]), rtol=1e-6)
    result = kernels.blend(x, np.ones(7), x[3], rows=rows, backend=backend)
    np.testing.assert_allclose(result.dots, reference.wide(x)[rows] @ x[3], rtol=1e-5, atol=1e-3)
    mask = np.isin(np.arange(26), rows)
    value = kernels.combine(x, np.ones(7), rows=mask, backend=backend).value
    close(value, x[mask].astype(float).sum(0))


COLUMNS = np.arange(70_000)
ODD = {
    "far from zero": lambda x: 1e4 + 1e-3 * x,
    "tiny": lambda x: 1e-30 * x,
    "huge": lambda x: 1e30 * x,
    "dead columns": lambda x: x * (COLUMNS % 3 > 0),
    "equal columns": lambda x: np.where(COLUMNS % 3, x, 0.25 * (COLUMNS % 7 - 3)),
    "one row far off": lambda x: x + 1e5 * (np.arange(len(x)) == 0)[:, None],
    "all scales": lambda x: x * 10.0 ** (COLUMNS // 1000 - 40),
}


@everywhere
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("n", [2, 12, 101])
def test_deviations_of_odd_columns(
    n: int, name: str, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = ODD[name](normal(n, COLUMNS.size, np.float64)).astype(np.float32)
    expected = reference.moments(x)[1]
    tiny = 1e-14 if name == "equal columns" else float(np.finfo(np.float32).tiny)
    calls = [kernels.moments, kernels.geometry]
    for call in calls[:1] if backend == "torch" else calls:  # whose geometry has its moments
        result = []
        for threads in "1", "2", "3":
            monkeypatch.setenv("FEDRO_THREADS", threads)
            result.append(call(x, backend=backend).std)
        np.testing.assert_allclose(reference.wide(result[0]), expected, rtol=1e-5, atol=tiny)
        assert all((std == result[0]).all() for std in result)


@everywhere
@pytest.mark.parametrize("n", [1, 3, 26])
def test_the_mean_is_a_combination_but_for_the_last_bit(n: int, backend: Any) -> None:
    x = normal(n, 9000)
    mean = kernels.moments(x, backend=backend).mean
    combined = kernels.combine(x, np.full(n, 1 / n), backend=backend).value
    np.testing.assert_allclose(mean, combined, rtol=0, atol=2**-23 * np.abs(x).max())


@everywhere
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_facts(dtype: Any, backend: Any) -> None:
    x, r = normal(26, 9000, dtype), normal(1, 9000, dtype)[0]
    result, w = kernels.facts(x, r, backend=backend), reference.wide(x)
    np.testing.assert_allclose(result.squared, (w**2).sum(1), rtol=1e-13)
    np.testing.assert_allclose(result.dots, w @ r.astype(float), rtol=1e-11, atol=1e-10)
    np.testing.assert_allclose(result.gaps, ((w - r) ** 2).sum(1), rtol=1e-13)


def test_columns() -> None:
    x, index = normal(5, 1000), np.array([999, 0, 17])
    for y in (x, torch.from_numpy(x), np.asfortranarray(x), torch.from_numpy(x).bfloat16()):
        sample = kernels.columns(y, index, rows=[4, 1])
        assert sample.dtype == np.float64
        assert (sample == reference.wide(y)[[4, 1]][:, index]).all()
