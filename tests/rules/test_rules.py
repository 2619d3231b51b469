"""Every rule in the table, against its plain reference and against what it promises."""

import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedro
import oracle
from fedro import kernels, rules
from fedro.rules import RULES, Rule, parse_rule
from fedro.rules.kappa import lower_bound
from fedro.rules.subsets import least_diameter, least_variance
from rule_cases import (
    EVERY,
    FINAL,
    PIPELINES,
    SIZES,
    distance_to,
    expected,
    make,
    reference_for,
    usable,
)


@pytest.fixture(params=["torch", pytest.param("compiled", marks=pytest.mark.slow)])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both back ends: small inputs go to torch unless nothing is called small."""
    if request.param == "compiled":
        monkeypatch.setattr(kernels, "SMALL", 0)
    return request.param


# --- agreement ---------------------------------------------------------------------------------


def test_every_rule_has_a_reference() -> None:
    built_in = {n for n, e in RULES.items() if e.function.__module__.startswith("fedro.")}
    assert built_in <= set(oracle.RULES) | set(oracle.MIXERS)


@pytest.mark.parametrize("case", oracle.CASES)
@pytest.mark.parametrize("text", EVERY)
def test_agrees_with_the_reference(text: str, case: str, backend: str) -> None:
    if text in FINAL and text not in oracle.RULES:
        pytest.skip("a rule of the user's own, without a reference")
    for n, b, d in SIZES:
        if not usable(text, n, b) or (text == "smea" and n > 9):
            continue
        x = oracle.CASES[case](n, d, b, seed=1)
        rule = make(text, b)
        call = reference_for(rule, x)
        if ambiguous(rule, x, b):
            continue
        outputs = expected(rule, x, b, call)
        spread = np.abs(x - np.median(x, axis=0)).max() + np.abs(x).max() * 1e-6
        tolerance = 1e-6 if "geometric" in text else 1e-9
        if text == "meamed":
            low, high = oracle.meamed_interval(x, b)
            got = rule(x, **call)
            slack = tolerance * spread
            assert ((low - slack <= got) & (got <= high + slack)).all(), (n, b, d)
            continue
        assert distance_to(outputs, rule(x, **call)) <= tolerance * spread, (n, b, d)


def ambiguous(rule: Rule, x: np.ndarray, b: int) -> bool:
    """Do ties, or far rows that are dropped, leave the reference's answer open?"""
    names = [stage.name for stage in rule.stages]
    ties = any(len(np.unique(column)) < len(x) for column in x.T)
    if ties and (names[-1] in ("bulyan", "caf") or "meamed" in names[1:]):
        return True  # equal values are equally near a median, or stick out equally far
    rows = np.asarray(x, dtype=np.float64)
    if len(names) > 1 and "nnm" in names:
        tied = oracle.nnm_ambiguous(rows, b)
        squeezed = np.linalg.matrix_rank(rows - rows.mean(axis=0)) <= 1
        return tied or bool(squeezed) or not oracle.near_rows(rows, b, 2.0**20).all()
    return not oracle.near_rows(rows, b, 2.0**20).all()


@pytest.mark.parametrize("text", ["trimmed_mean", "median", "krum", "nnm | trimmed_mean", "mean"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_kind_and_dtype_are_kept_and_input_is_unchanged(
    text: str, dtype: torch.dtype, backend: str
) -> None:
    x = torch.randn(9, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x.to(dtype)
    before = x.clone()
    got = parse_rule(text, b=2)(x)
    assert isinstance(got, torch.Tensor)
    assert got.dtype == dtype
    assert torch.equal(x, before)
    reference = expected(parse_rule(text, b=2), x.double().numpy(), 2, {})
    precision = torch.finfo(dtype).eps
    assert distance_to(reference, got.double().numpy()) <= 8 * precision


@pytest.mark.parametrize("text", EVERY)
def test_never_modifies_its_input(text: str, backend: str) -> None:
    x = oracle.CASES["outliers"](11, 40, 2).astype(np.float32)
    x.flags.writeable = False
    rule = make(text, 2)
    got = rule(x, **reference_for(rule, x))
    assert isinstance(got, np.ndarray)
    assert got.dtype == np.float32
    assert got.shape == (40,)


def test_memory_maps_and_strides(tmp_path: Path, backend: str) -> None:
    x = oracle.CASES["gaussian"](9, 3000, 2).astype(np.float32)
    x.tofile(tmp_path / "updates.bin")
    mapped = np.memmap(tmp_path / "updates.bin", dtype=np.float32, mode="r", shape=x.shape)
    wide = np.zeros((18, 6000), dtype=np.float32)
    wide[::2, ::2] = x
    for text in ("nnm | trimmed_mean", "krum", "median", "geometric_median"):
        whole = parse_rule(text, b=2)(x)
        for other in (mapped, wide[::2, ::2], np.asfortranarray(x)):
            assert np.array_equal(parse_rule(text, b=2)(other), whole)


# --- equivariance ------------------------------------------------------------------------------


def properties(name: str) -> frozenset[str]:
    return oracle.EQUIVARIANCE.get(name, frozenset({"permutation", "translation", "scale"}))


@pytest.mark.parametrize("name", FINAL)
def test_equivariance(name: str, backend: str) -> None:
    x = oracle.CASES["gaussian"](11, 6, 2, seed=3)
    rule, rng = make(name, 2), np.random.default_rng(5)
    call = reference_for(rule, x)
    base = rule(x, **call)
    if "translation" in properties(name):
        shift = rng.standard_normal(6)
        moved = {key: value + shift for key, value in call.items()}
        assert np.allclose(rule(x + shift, **moved), base + shift, atol=1e-7)
    if "scale" in properties(name) and name not in ("norm_clip", "centered_clipping"):
        for factor in (-3.0, 1e-20, 1e20):
            scaled = {key: value * factor for key, value in call.items()}
            assert np.allclose(rule(x * factor, **scaled), base * factor, atol=1e-7 * abs(factor))
    if "permutation" in properties(name) and name not in ("dnc", "mda", "bulyan"):
        order = rng.permutation(11)  # mda and bulyan have ties by nature: the references show them
        assert np.allclose(rule(x[order], **call), base, atol=1e-7)


@pytest.mark.parametrize("text", ["trimmed_mean", "median", "meamed", "mean"])
def test_column_shards_give_the_same_bits(text: str, backend: str) -> None:
    x = oracle.CASES["heavy_tailed"](9, 3 * kernels.GRID + 20_000, 2).astype(np.float32)
    rule = parse_rule(text, b=2)
    parts = [rule(x[:, i : i + kernels.GRID]) for i in range(0, x.shape[1], kernels.GRID)]
    assert np.array_equal(np.concatenate(parts), rule(x))


def test_copies_of_a_row_lose_their_weight_together_in_caf() -> None:
    """Whatever rounding makes of their distances."""

    class Known:
        """Rows of which only the distances are known; their combination is the weights."""

        n, b = 15, 3

        def __init__(self, sq: np.ndarray) -> None:
            self.sq = sq

        def combine(self, weights: np.ndarray) -> np.ndarray:
            return weights

    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((15, 60))
        x[:3] = 40 * x[0]
        sq = ((x[:, None] - x) ** 2).sum(2)
        rounded = sq * (1 + 1e-14 * np.triu(rng.standard_normal(sq.shape), 1))
        rounded = np.triu(rounded) + np.triu(rounded).T
        weights, others = (RULES["caf"].function(Known(given)) for given in (sq, rounded))
        np.testing.assert_allclose(weights, others, atol=1e-9)
        np.testing.assert_allclose(weights[:3], weights[0], atol=1e-9)


@pytest.mark.parametrize("text", ["nnm | trimmed_mean", "geometric_median", "krum", "caf"])
def test_threads_do_not_change_a_bit(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = oracle.CASES["gaussian"](15, 200_000, 4).astype(np.float32)
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("FEDRO_THREADS", threads)
        results.append(parse_rule(text, b=4)(x))
    assert all(np.array_equal(results[0], other) for other in results[1:])


# --- a bad majority --------------------------------------------------------------------------


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


# --- the robustness inequality -----------------------------------------------------------------

PROVED = [text for text in [*FINAL, *PIPELINES] if make(text, 1).kappa(9) is not None]


@pytest.mark.slow
@pytest.mark.parametrize("text", PROVED)
@given(st.data())
@settings(max_examples=150)
def test_kappa_inequality_for_every_subset(text: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(3, 9))
    b = data.draw(st.integers(0, (n - 1) // 2))
    if text == "mean":
        b = 0
    case = data.draw(st.sampled_from([*oracle.CASES, "two_values"]))
    d = data.draw(st.integers(1, 3))
    if case == "two_values":
        values = data.draw(st.lists(st.integers(-2, 2), min_size=n * d, max_size=n * d))
        x = np.array(values, dtype=np.float64).reshape(n, d)
    else:
        x = oracle.CASES[case](n, d, b, seed=data.draw(st.integers(0, 10**6)))
    rule = make(text, b)
    kappa = rule.kappa(n)
    assert kappa is not None
    ratio = oracle.kappa_ratio(rule(x), x, b, rounding=1e-6)
    assert ratio <= kappa * (1 + 1e-5) + 1e-9


@pytest.mark.parametrize("text", ["mean", "norm_clip"])
def test_the_inequality_fails_for_what_is_not_robust(text: str) -> None:
    x = 1e-3 * np.array([[0.0], [1.0], [0.5], [0.2], [1e6]])
    ratio = oracle.kappa_ratio(make(text, 1)(x), x, 1)
    assert ratio > 10 * lower_bound(5, 1)


def test_zeros_and_ones_attain_the_lower_bound() -> None:
    for n, b in ((5, 2), (9, 3), (26, 11)):
        x = np.zeros((n, 1))
        x[:b] = 1.0
        assert parse_rule("trimmed_mean", b=b)(x)[0] == 0.0
    assert oracle.kappa_ratio(0.0, np.array([[1.0], [1], [0], [0], [0]]), 2) == pytest.approx(2.0)


# --- hostile rows ------------------------------------------------------------------------------

HOSTILE = {
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "huge": 3e38,
    "-huge": -3e38,
}


@pytest.mark.parametrize("poison", [*HOSTILE, "mixed"])
@pytest.mark.parametrize("text", EVERY)
def test_up_to_b_hostile_rows_give_a_finite_robust_answer(
    text: str, poison: str, backend: str
) -> None:
    n, b, d = 11, 2, 40
    rng = np.random.default_rng(11)
    x = rng.standard_normal((n, d)).astype(np.float32)
    bad = rng.choice(n, b, replace=False)
    if poison == "mixed":
        x[bad] = rng.choice([math.nan, math.inf, -math.inf, 3e38, -3e38, 0], (b, d))
    else:
        x[bad[0]] = HOSTILE[poison]
        x[bad[1], 7] = HOSTILE[poison]
    rule = make(text, b)
    call = reference_for(rule, np.delete(x, bad, axis=0))
    got = rule(x, **call)
    assert np.isfinite(got).all()
    kappa = rule.kappa(n)
    if kappa is not None:
        honest = np.delete(x, bad, axis=0).astype(np.float64)
        center = honest.mean(axis=0)
        variance = ((honest - center) ** 2).sum(axis=1).mean()
        assert ((got - center) ** 2).sum() <= kappa * variance * (1 + 1e-4)


@pytest.mark.parametrize("text", EVERY)
def test_more_than_b_rows_that_are_not_finite_are_an_error(text: str, backend: str) -> None:
    x = np.random.default_rng(0).standard_normal((11, 20))
    x[:3, 4] = [math.nan, math.inf, -math.inf]
    rule = make(text, 2)
    with pytest.raises(ValueError, match="no robust answer"):
        rule(x, **reference_for(rule, x[3:]))


# --- arguments ---------------------------------------------------------------------------------

X = np.random.default_rng(1).standard_normal((7, 5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: parse_rule("trimmed_mean", b=4)(X), "n=7 rows and b=4: needs 2b < n"),
        (lambda: parse_rule("trimmed_mean", b=-1), "b=-1"),
        (lambda: parse_rule("trimmed_mean", b=1.5), "b=1.5"),
        (lambda: parse_rule("trimmed_mean")(X), "needs b"),
        (lambda: parse_rule("bulyan", b=2)(X), "needs n ≥ 4b+3"),
        (lambda: parse_rule("krum(original=True)", b=3)(X), "n ≥ 2b+3"),
        (lambda: parse_rule("multi_krum(m=9)", b=1)(X), "m must be 1 to 6"),
        (lambda: parse_rule("bucketing | median", b=2)(X), "n=4 rows and b=2"),
        (lambda: parse_rule("nmn | median", b=2), "did you mean 'nnm'"),
        (lambda: parse_rule("krum(originl=True)", b=2), "did you mean 'original'"),
        (lambda: parse_rule("krum(n_byz=1)", b=2), "Known: original, b"),
        (lambda: parse_rule("krum(original=1)", b=2), "must be of type bool"),
        (lambda: parse_rule("clip | median", b=1), "clip needs limit="),
        (lambda: parse_rule("clip(limit=-1.0) | median", b=1)(X), "must be above 0"),
        (lambda: parse_rule("median | nnm", b=1), "comes last"),
        (lambda: parse_rule("nnm", b=1)(X), "ends in a mixer"),
        (lambda: parse_rule("nnm(b=1) | median(b=2)"), "one b for the whole pipeline"),
        (lambda: parse_rule("median(b=1)", b=2), "give one of the two"),
        (lambda: parse_rule(7), "a rule is a text"),
        (lambda: parse_rule(rules.krum), "krum makes rules: call it, as in krum(b=…)"),
        (lambda: parse_rule("monna", b=1)(X), "needs reference"),
        (lambda: parse_rule("monna", b=1)(X, reference=np.ones(4)), "reference has shape (4,)"),
        (lambda: parse_rule("monna", b=1)(X, reference=np.full(5, np.nan)), "NaN"),
        (lambda: parse_rule("median", b=1)(X, reference=np.ones(5)), "takes no reference"),
        (lambda: parse_rule("median", b=1)(X, weights=np.ones(7)), "takes no weights"),
        (lambda: parse_rule("mean", b=1)(X, weights=np.ones(6)), "weights have shape (6,)"),
        (lambda: parse_rule("mean", b=1)(X, weights=[1, 1, 1, 1, 1, 1, -1]), "above 0"),
        (lambda: parse_rule("multi_krum", b=1)(X, weights=[1, 1, 0, 1, 1, 1, 1]), "above 0"),
        (lambda: parse_rule("geometric_median(tolerance=0.5)", b=1)(X), "at most 0.001"),
        (lambda: rules.clip(limit=math.inf), "must be finite"),
        (lambda: parse_rule("krum(original=True, original=False)", b=1), "cannot read"),
        (lambda: parse_rule("multi_krum(original=True)", b=1)(X[:4]), "n ≥ 2b+3"),
        (lambda: Rule(()), "at least one stage"),
        (lambda: parse_rule("mean", b=1)(X, weights=[1, 1, 1, 1, 1, 1, 9]), "less than half"),
        (lambda: parse_rule("median", b=1)(X[0]), "shape (5,)"),
        (lambda: parse_rule("median", b=0)(X[:0]), "shape (0, 5)"),
        (lambda: parse_rule("median", b=1)(X, seed=-1), "seed=-1"),
    ],
)
def test_bad_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)


@pytest.mark.parametrize("bad", [[[1.0, 2.0]], "x", np.ones((3, 2), dtype=int), None])
def test_only_float_matrices(bad: object) -> None:
    with pytest.raises(TypeError, match="updates"):
        parse_rule("median", b=0)(bad)


def test_python_and_text_make_the_same_rule() -> None:
    python = rules.nnm() | rules.krum(b=2, original=True)
    assert python == parse_rule("nnm | krum(original=True)", b=2)
    assert str(python) == "nnm | krum(original=True, b=2)"
    for text in [*PIPELINES, "centered_clipping(tau=1.5, iterations=2)"]:
        rule = parse_rule(text, b=3)
        assert parse_rule(str(rule)) == rule
        assert hash(parse_rule(str(rule))) == hash(rule)
    with pytest.raises(AttributeError, match="no_such"):
        _ = rules.no_such


def test_b_can_be_overridden_and_any_integer() -> None:
    rule = parse_rule("trimmed_mean", b=np.int64(1))
    assert np.array_equal(rule(X, b=3), parse_rule("median", b=3)(X))
    assert rule.kappa(7, 3) == lower_bound(7, 3)


def test_kappa_tells_its_source() -> None:
    kappa = parse_rule("arc | nnm | krum", b=2).kappa(11)
    assert kappa is not None
    assert "Allouah" in kappa.source
    assert parse_rule("bulyan", b=1).kappa(11) is None
    assert parse_rule("krum(original=True)", b=1).kappa(11) is None
    assert parse_rule("bucketing | median", b=1).kappa(11) is None
    assert parse_rule("mean", b=1).kappa(11) is None
    assert parse_rule("mean", b=0).kappa(11) == 0
    assert parse_rule("geometric_median(tolerance=1e-6)", b=1).kappa(11) is None


# --- what an attacker might try ---------------------------------------------------------------


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


@pytest.mark.parametrize(
    "text", ["bucketing | centered_clipping", "bucketing | monna", "dnc", "arc | median"]
)
def test_one_row_too_large_to_square(text: str) -> None:
    x = np.random.default_rng(2).standard_normal((7, 6))
    x[6] = 1e200
    rule = parse_rule(text, b=1)
    assert np.abs(rule(x, **reference_for(rule, x[:6]))).max() < 5


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("trusted", [np.ones(5), torch.ones(5, requires_grad=True), [1.0] * 5])
def test_references_of_any_kind(kind: Callable[..., Any], trusted: Any) -> None:
    updates = kind(X)
    for text in ("monna", "centered_clipping", "fltrust"):
        got = parse_rule(text, b=1)(updates, reference=trusted)
        assert type(got) is type(updates)
        assert not getattr(got, "requires_grad", False)


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
    monkeypatch.setattr(kernels, "SMALL", 0)
    x = np.random.default_rng(seed).standard_normal((9, 300)).astype(np.float32)
    x[0] *= 1e5
    got = parse_rule("geometric_median", b=1)(x)
    assert distance_to([oracle.geometric_median(x.astype(np.float64), 1)], got) < 1.5e-4


# --- weights and randomness --------------------------------------------------------------------


def test_weights_are_data_set_sizes() -> None:
    sizes = np.array([1, 2, 3, 4, 5, 6, 7.0])
    assert np.allclose(parse_rule("mean", b=1)(X, weights=sizes), np.average(X, 0, sizes))
    copies = np.repeat(X, sizes.astype(int), axis=0)
    got = parse_rule("geometric_median", b=1)(X, weights=sizes)
    assert np.allclose(got, oracle.geometric_median(copies, 0), atol=1e-6)
    equal = parse_rule("multi_krum", b=1)(X, weights=np.full(7, 3.0))
    assert np.allclose(equal, parse_rule("multi_krum", b=1)(X))


def test_weights_of_dropped_rows_are_dropped() -> None:
    x = X.copy()
    x[3] = np.nan
    sizes = np.arange(1.0, 8.0)
    got = parse_rule("mean", b=1)(x, weights=sizes)
    assert np.allclose(got, np.average(np.delete(X, 3, 0), 0, np.delete(sizes, 3)))


def test_seeds_decide_what_is_drawn() -> None:
    x = np.random.default_rng(3).standard_normal((20, 400))
    rule = parse_rule("bucketing(s=3) | median", b=2)
    assert np.array_equal(rule(x, seed=5), rule(x, seed=5))
    assert not np.array_equal(rule(x, seed=5), rule(x, seed=6))
    order = np.random.default_rng(5).permutation(20)
    assert np.allclose(
        rule(x, seed=5), oracle.median(oracle.bucketing(x, 2, permutation=order, s=3), 2)
    )
    few = parse_rule("dnc(columns=50, iterations=3)", b=2)
    assert np.array_equal(few(x, seed=1), few(x, seed=1))


def test_progress_is_told() -> None:
    x = np.random.default_rng(3).standard_normal((9, 200_000)).astype(np.float32)
    seen: list[tuple[int, int]] = []
    parse_rule("nnm | trimmed_mean", b=2)(x, progress=lambda done, all_: seen.append((done, all_)))
    assert seen.count((200_000, 200_000)) == 2  # two passes


# --- limits of exact search --------------------------------------------------------------------


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


# --- one function makes a rule -----------------------------------------------------------------

NEW_RULE = '''
import numpy as np
from fedro.rules import register

@register(source="this test", kappa=lambda n, b: b / (n - 2 * b), kappa_source="own")
def lone_trim(rows):
    """Trims like trimmed_mean."""
    return rows.band(rows.b, rows.n - rows.b)
'''


@pytest.mark.slow
def test_a_new_rule_gets_everything_from_one_function(tmp_path: Path) -> None:
    (tmp_path / "extra_rule.py").write_text(NEW_RULE)
    environment = {
        **__import__("os").environ,
        "PYTHONPATH": str(tmp_path),
        "FEDRO_TEST_IMPORT": "extra_rule",
    }

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, env=environment, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    cli = "import extra_rule, fedro.cli as c; c.app({})"
    assert "lone_trim" in run("-c", cli.format(["rules"]))
    assert "lone_trim" in run("-c", cli.format(["rules", "--markdown"]))
    asked = ["kappa", "nnm | lone_trim", "--sampled", "7", "--tolerated", "2", "--seconds", "1"]
    assert "proved κ" in run("-c", cli.format(asked))
    tests = run("-m", "pytest", str(Path(__file__)), "-k", "lone_trim", "-p", "no:cacheprovider")
    found = re.search(r"^([.s]+)\s", tests, flags=re.MULTILINE)
    assert found, tests
    assert found[1].count(".") >= 15
    assert fedro.RULES is RULES


def test_a_rule_of_your_own_is_named_with_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = NEW_RULE.replace("lone_trim", "own_trim") + "\nnumber = 3\n"
    (tmp_path / "own_rule_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(RULES, "_entries", dict(RULES))
    rule = parse_rule("nnm | own_rule_module:own_trim", b=2)
    assert rule == parse_rule("nnm | own_rule_module:own_trim(b=2)") == parse_rule(str(rule))
    x = np.random.default_rng(0).standard_normal((9, 5))
    assert np.array_equal(rule(x), parse_rule("nnm | trimmed_mean", b=2)(x))
    assert rule.kappa(9) == parse_rule("nnm | trimmed_mean", b=2).kappa(9)
    for text, message in {
        "own_rule_module:own_trimm": "did you mean 'own_trim'",
        "own_rule_module:number": "put @register",
        "no_such_module:own_trim": "there is no module 'no_such_module'",
        "1 + 1:own_trim": "write a rule of your own as 'my_module:my_rule'",
        "own_rule_module:own_trim(c=1)": "unknown option",
    }.items():
        with pytest.raises(ValueError, match=message):
            parse_rule(text, b=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bucketing(s=0) | median", "s must be at least 1"),
        ("dnc(c=-1.0)", "c must be at least 0"),
        ("multi_krum(m=0)", "m must be at least 1"),
        ("centered_clipping(tau=0.0)", "tau must be above 0"),
        ("geometric_median(tolerance=1.0)", "tolerance must be above 0, at most 0.001"),
        ("clip(limit=0.0) | median", "limit must be above 0"),
    ],
)
def test_values_of_options_are_checked_when_a_rule_is_read(text, message):
    with pytest.raises(ValueError, match=message):
        parse_rule(text)
