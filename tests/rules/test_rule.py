"""Rule and parse_rule: arguments, text, weights, seeds."""

import copy
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedro
import oracle
from fedro import rules
from fedro.rules import RULES, Rule, parse_rule
from fedro.rules.kappa import lower_bound
from rule_cases import (
    PIPELINES,
)

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


def test_a_rule_object_is_accepted_in_place_of_text() -> None:
    rule = rules.nnm() | rules.median()
    assert parse_rule(rule) is rule
    assert parse_rule(rule, b=2) == parse_rule("nnm | median", b=2)
    with pytest.raises(ValueError, match=r"b=1, but the rule 'median\(b=2\)' has b=2"):
        parse_rule(rules.median(b=2), b=1)
    paper = {"clients": 150, "byzantine": 15, "rounds": 500}
    assert fedro.plan(**paper, rule=rule).sampled == fedro.plan(**paper, rule=str(rule)).sampled
    worst = fedro.search_kappa(rule, 5, 1, seconds=5, enough=0.1)
    assert worst.updates.shape == (5, 2)


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
    assert parse_rule("krum(original=False)", b=1).kappa(11) == parse_rule("krum", b=1).kappa(11)
    assert parse_rule("bucketing | median", b=1).kappa(11) is None
    assert parse_rule("mean", b=1).kappa(11) is None
    assert parse_rule("mean", b=0).kappa(11) == 0
    assert parse_rule("geometric_median(tolerance=1e-6)", b=1).kappa(11) is None


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("trusted", [np.ones(5), torch.ones(5, requires_grad=True), [1.0] * 5])
def test_references_of_any_kind(kind: Callable[..., Any], trusted: Any) -> None:
    updates = kind(X)
    for text in ("monna", "centered_clipping", "fltrust"):
        got = parse_rule(text, b=1)(updates, reference=trusted)
        assert type(got) is type(updates)
        assert not getattr(got, "requires_grad", False)


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


NEW_RULE = '''
import numpy as np
from fedro.rules import register

@register(source="this test", kappa=lambda n, b: b / (n - 2 * b), kappa_source="own")
def lone_trim(rows):
    """Trims like trimmed_mean."""
    return rows.band(rows.b, rows.n - rows.b)
'''


def test_a_rule_of_your_own_is_named_with_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = NEW_RULE.replace("lone_trim", "own_trim") + "\nnumber = 3\n"
    (tmp_path / "own_rule_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(RULES, "_entries", dict(RULES))
    rule = parse_rule("nnm | own_rule_module:own_trim", b=2)
    assert rule == parse_rule("nnm | own_rule_module:own_trim(b=2)") == parse_rule(str(rule))
    assert str(rule) == "nnm | own_rule_module:own_trim(b=2)"  # another process can read this
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


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_rules_and_their_kappa_can_be_copied(copied: Callable[[Any], Any]) -> None:
    rule = parse_rule("nnm | krum(original=True)", b=2)
    assert copied(rule) == rule
    kappa = parse_rule("nnm | krum", b=2).kappa(9)
    assert kappa is not None
    assert copied(kappa) == kappa
    assert copied(kappa).source == kappa.source
