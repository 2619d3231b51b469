"""Rows as affine combinations: every number follows from those of the original rows."""

import inspect

import numpy as np
import pytest

from fedro.rules.rows import AffineRows, DroppedRows, Rows, RowSource


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((7, 5))


def rows_of(x: np.ndarray, reference: np.ndarray | None = None) -> AffineRows:
    return AffineRows(RowSource(x, np.arange(len(x)), 2, reference))


def test_everything_in_the_protocol_is_documented_and_implemented() -> None:
    members = {name: member for name, member in vars(Rows).items() if name[0] != "_"}
    assert {"n", "b", "sq", "norms", "combine", "band", "sq_to", "averaged", "scaled"} <= set(
        members
    )
    for name, member in members.items():
        assert inspect.getdoc(member), name
        assert hasattr(AffineRows, name), name


def test_mixed_rows_have_the_numbers_of_the_rows_written_out(x: np.ndarray) -> None:
    reference = np.random.default_rng(1).standard_normal(5)
    factors = np.linspace(0.2, 1.5, 7)
    lists = [np.array(part) for part in ([0, 1, 2], [3, 4], [5, 6, 0], [2])]
    mixed = rows_of(x, reference).scaled(factors).averaged(lists).scaled(np.array([2.0, 1, 1, 0.5]))
    y = np.array([(factors[:, None] * x)[part].mean(axis=0) for part in lists])
    y *= np.array([[2.0], [1], [1], [0.5]])
    weights = np.array([0.1, 0.2, 0.3, 0.5])
    point = weights @ y + 0.25 * reference
    expected = {
        "sq": ((y[:, None] - y) ** 2).sum(axis=2),
        "norms": np.linalg.norm(y, axis=1),
        "reference_dot": y @ reference,
        "reference_sq": ((y - reference) ** 2).sum(axis=1),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(mixed, name), value, atol=1e-10, err_msg=name)
    np.testing.assert_allclose(mixed.combine(weights, 0.25), point)
    np.testing.assert_allclose(mixed.sq_to(weights, 0.25), ((y - point) ** 2).sum(axis=1))
    np.testing.assert_allclose(mixed.band(1, 3), np.sort(y, axis=0)[1:3].mean(axis=0))
    np.testing.assert_allclose(mixed.only(np.array([3, 1])).norms, expected["norms"][[3, 1]])
    assert mixed.n == 4
    assert mixed.has_reference
    assert not rows_of(x).has_reference


def test_measurements_are_kept_when_rows_are_dropped(
    x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    x[3] = np.nan
    source = RowSource(x, np.arange(7), 2, None)
    with pytest.raises(DroppedRows) as dropped:
        _ = source.sq
    with pytest.raises(DroppedRows):
        _ = RowSource(x, np.arange(7), 2, None).facts
    assert dropped.value.keep.tolist() == [True, True, True, False, True, True, True]
    kept = source.keep(dropped.value.keep)
    monkeypatch.setattr(kept, "measure_distances", lambda: pytest.fail("measured again"))
    others = np.delete(x, 3, axis=0)
    np.testing.assert_allclose(kept.sq, ((others[:, None] - others) ** 2).sum(axis=2), atol=1e-10)
    np.testing.assert_allclose(kept.facts.squared, (others**2).sum(axis=1))
    assert kept.b == 1
