"""Every rule in the table, against its plain reference and against what it promises."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fedro
import oracle
from fedro import kernels
from fedro.rules import RULES, Rule, parse_rule
from rule_cases import (
    EVERY,
    FINAL,
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
        monkeypatch.setattr(kernels, "MIN_COMPILED_SIZE", 0)
    return request.param


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


@pytest.mark.parametrize("text", ["nnm | trimmed_mean", "geometric_median", "krum", "caf"])
def test_threads_do_not_change_a_bit(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = oracle.CASES["gaussian"](15, 200_000, 4).astype(np.float32)
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("FEDRO_THREADS", threads)
        results.append(parse_rule(text, b=4)(x))
    assert all(np.array_equal(results[0], other) for other in results[1:])


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


@pytest.mark.parametrize(
    "text", ["bucketing | centered_clipping", "bucketing | monna", "dnc", "arc | median"]
)
def test_one_row_too_large_to_square(text: str) -> None:
    x = np.random.default_rng(2).standard_normal((7, 6))
    x[6] = 1e200
    rule = parse_rule(text, b=1)
    assert np.abs(rule(x, **reference_for(rule, x[:6]))).max() < 5


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
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "FEDRO_TEST_IMPORT": "extra_rule",
    }

    def run(*command: str) -> str:
        finished = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, env=environment, timeout=300
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout

    asked = ["kappa", "nnm | lone_trim", "--sampled", "7", "--tolerated", "2", "--seconds", "0.2"]
    calls = [["rules"], ["rules", "--markdown"], asked]
    code = (
        "import extra_rule, fedro.cli\n"
        "for call in {}: fedro.cli.app(call, standalone_mode=False), print('===')"
    )
    listed, markdown, kappa, _ = run("-c", code.format(calls)).split("===")
    assert "lone_trim" in listed
    assert "lone_trim" in markdown
    assert "proved κ" in kappa
    files = [str(Path(__file__)), str(Path(__file__).with_name("test_kappa.py"))]
    tests = run("-m", "pytest", *files, "-k", "lone_trim", "-p", "no:cacheprovider")
    dots = re.search(r"^([.s]+)\s", tests, flags=re.MULTILINE)
    assert dots, tests
    assert dots[1].count(".") >= 15
    assert fedro.RULES is RULES
