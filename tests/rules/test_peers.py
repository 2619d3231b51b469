"""The failures seen in other libraries, each as a test that passes here; and where they agree."""

import math

import numpy as np
import pytest
import torch

import oracle
from fedro import rules
from fedro.rules import parse_rule

peers = pytest.importorskip("peers")
AGREE = ["mean", "median", "trimmed_mean", "krum", "multi_krum", "mda", "meamed", "nnm | median"]


@pytest.mark.parametrize("text", AGREE)
@pytest.mark.parametrize(("n", "b", "d"), [(8, 3, 10), (11, 2, 50), (12, 4, 200)])
def test_agrees_with_byzfl_where_it_is_right(text: str, n: int, b: int, d: int) -> None:
    *mixers, last = text.split(" | ")
    for seed in range(3):
        x = oracle.CASES["gaussian"](n, d, b, seed)
        if last == "mda" and len(oracle.OUTPUTS["mda"](x, b)) > 1:
            continue
        expected = x
        for name in [*mixers, last]:
            expected = peers.byzfl_rule(name, b)(expected)
        assert np.allclose(parse_rule(text, b=b)(x), expected, atol=1e-10)


def test_a_converged_byzfl_geometric_median_agrees() -> None:
    x = oracle.CASES["gaussian"](11, 20, 2)
    expected = peers.byzfl_rule("geometric_median", 2, nu=1e-12, T=3000)(x)
    assert np.allclose(parse_rule("geometric_median", b=2)(x), expected, atol=1e-7)


def test_a_misspelt_option_is_not_plain_averaging() -> None:
    with pytest.raises(ValueError, match="unknown option of trimmed_mean 'n_byz'"):
        rules.trimmed_mean(n_byz=1)


def test_geometric_median_is_converged() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((11, 50)) + 10
    x[:3] = -100.0
    honest = x[3:].mean(axis=0)
    ours = np.linalg.norm(parse_rule("geometric_median", b=3)(x) - honest)
    theirs = np.linalg.norm(peers.byzfl_rule("geometric_median", 3)(x) - honest)
    assert ours < 0.7 * theirs
    assert oracle.geometric_median_residual(x, parse_rule("geometric_median", b=3)(x)) < 1e-6


def test_tiny_updates_around_large_weights_are_told_apart() -> None:
    """‖x‖²+‖y‖²−2x·y in float32 picks Byzantine rows here."""
    for seed in range(15):
        rng = np.random.default_rng(seed)
        center = rng.standard_normal(1000)
        x = (center + 1e-5 * rng.standard_normal((30, 1000))).astype(np.float32)
        x[:4] = (center + 1e-4 * rng.standard_normal((4, 1000))).astype(np.float32)
        got = parse_rule("krum", b=4)(torch.from_numpy(x)).numpy()
        assert not any(np.array_equal(got, row) for row in x[:4])


def test_float64_stays_float64_and_numpy_integers_are_fine() -> None:
    x = torch.randn(5, 7, dtype=torch.float64)
    for text in ("krum", "arc | median", "clip(limit=1.0) | mean"):
        before = x.clone()
        assert parse_rule(text, b=np.int64(1))(x).dtype == torch.float64
        assert torch.equal(x, before)


@pytest.mark.parametrize("text", ["krum", "multi_krum", "mda", "median", "trimmed_mean"])
@pytest.mark.parametrize(("n", "b"), [(3, 2), (7, 4), (7, 5), (4, 2)])
def test_half_or_more_bad_rows_are_refused(text: str, n: int, b: int) -> None:
    with pytest.raises(ValueError, match="2b < n"):
        parse_rule(text, b=b)(np.ones((n, 3)))


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1, 1e12], [1, 1, 1, 1, -5]])
def test_claimed_sizes_cannot_take_over(sizes: list[float]) -> None:
    with pytest.raises(ValueError, match="weight"):
        parse_rule("multi_krum", b=1)(np.ones((5, 3)), weights=sizes)


@pytest.mark.parametrize("bad", [1e8, 3e38, math.inf, -math.inf, math.nan])
def test_trimming_is_not_sum_minus_topk(bad: float) -> None:
    x = torch.ones(10, 4)
    x[:2] = bad
    assert torch.equal(parse_rule("trimmed_mean", b=2)(x), torch.ones(4))


def test_caf_ends_whatever_the_outliers() -> None:
    x = oracle.CASES["gaussian"](11, 5, 2)
    x[0], x[1] = 1e4, -1e5
    got = parse_rule("caf", b=2)(x)
    assert np.linalg.norm(got - x[2:].mean(axis=0)) < 3


@pytest.mark.parametrize("text", ["caf", "smea", "krum", "mda", "geometric_median", "bulyan"])
def test_equal_rows_are_the_answer(text: str) -> None:
    assert np.allclose(parse_rule(text, b=2)(np.full((11, 3), 2.5)), 2.5)


def test_zeros_and_ones() -> None:
    x = np.zeros((11, 4))
    x[:3] = 1.0
    for text in ("caf", "smea", "mva", "mda", "krum", "median", "trimmed_mean", "meamed"):
        assert np.allclose(parse_rule(text, b=3)(x), 0.0, atol=1e-12), text


def test_arc_counts_in_integers() -> None:
    norms = np.arange(1.0, 243.0)
    x = norms[:, None]  # k = ⌊2·33·209/242⌋ = 57
    clipped = parse_rule("arc | mean", b=33)(x)
    limit = 242 - 57
    assert clipped[0] == pytest.approx(np.minimum(norms, limit).mean())
