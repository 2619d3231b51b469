"""@register: what it makes of a function, and which declarations it refuses."""

import doctest
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedro import rules
from fedro.common.user_code import UserCodeError
from fedro.rules import (
    ABOVE_ZERO,
    ANY,
    BULYAN_SIZE,
    MAJORITY,
    RULES,
    NoAggregateError,
    Rule,
    Validity,
    kappa,
    parse_rule,
    register,
)

BUILT_IN = sorted(name for name, e in RULES.items() if e.function.__module__.startswith("fedro."))


@pytest.fixture
def _own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that a test registers are gone after it."""
    monkeypatch.setattr(RULES, "_entries", dict(RULES))


# --- factories -----------------------------------------------------------------------------------


def test_every_built_in_rule_is_imported_by_name() -> None:
    assert set(BUILT_IN) <= set(rules.__all__)
    for name in rules.__all__:
        assert getattr(rules, name) is not None
    with pytest.raises(AttributeError, match="no_such"):
        _ = rules.no_such


def test_a_factory_has_the_signature_of_its_rule() -> None:
    assert inspect.signature(rules.krum) == inspect.Signature(
        [
            inspect.Parameter(
                "b", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=int | None
            ),
            inspect.Parameter(
                "original", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=bool
            ),
        ],
        return_annotation=Rule,
    )
    assert rules.krum.__name__ == rules.krum.__qualname__ == "krum"
    assert rules.krum.__module__ == "fedro.rules.selection"
    assert rules.krum.entry is RULES["krum"]
    with pytest.raises(TypeError, match="positional"):
        rules.krum(2)


def test_a_factory_takes_numpy_numbers_as_plain_ones() -> None:
    rule = rules.clip(limit=np.float64(2.0)) | rules.median(b=np.int64(1))  # type: ignore[arg-type]
    assert str(rule) == "clip(limit=2.0) | median(b=1)"


def test_a_factory_knows_its_kappa() -> None:
    assert rules.krum.kappa(9, 2) == kappa.krum(9, 2)
    assert rules.nnm.kappa(9, 2, 0.5) == kappa.nnm(9, 2, 0.5)
    assert rules.mean.kappa(9, 1) is None
    assert rules.bulyan.kappa(11, 2) is None
    with pytest.raises(ValueError, match="nnm is a mixer: give inner="):
        rules.nnm.kappa(9, 2)
    with pytest.raises(ValueError, match="krum with n=4 rows and b=2: needs 2b < n"):
        rules.krum.kappa(4, 2)


@pytest.mark.parametrize("name", BUILT_IN)
def test_documentation_is_complete_and_its_example_works(name: str) -> None:
    factory, entry = getattr(rules, name), RULES[name]
    doc = inspect.getdoc(factory)
    assert doc is not None
    assert doc.startswith(entry.summary)
    assert f"Valid for {entry.valid}" in doc
    assert entry.source in " ".join(doc.split())
    for option in ["b", *entry.options]:
        assert f"\n    {option}: " in doc, f"{option} is not explained"
    assert all(len(line) <= 100 for line in doc.splitlines())
    examples = doctest.DocTestParser().get_doctest(doc, {"np": np, **vars(rules)}, name, None, None)
    assert examples.examples
    assert doctest.DocTestRunner().run(examples).failed == 0


# --- declarations --------------------------------------------------------------------------------


def plain(rows: Any) -> Any: ...
def with_power(rows: Any, *, power: float = 1.0) -> Any: ...
def without_hint(rows: Any, *, power=1.0) -> Any: ...  # type: ignore[no-untyped-def]
def with_b(rows: Any, *, b: int = 1) -> Any: ...
def krum(rows: Any) -> Any: ...


@pytest.mark.parametrize(
    ("declaration", "function", "error", "message"),
    [
        ({"valid": "n > 3b"}, plain, TypeError, r"valid='n > 3b'.*give MAJORITY.*Validity\("),
        ({"valid": Validity("n > 3b", lambda n: n > 3)}, plain, TypeError, "must take n and b"),  # type: ignore[misc, arg-type]
        ({"reference": "maybe"}, plain, ValueError, "unknown reference 'maybe'.*no, optional"),
        ({"ranges": {"powr": ABOVE_ZERO}}, with_power, ValueError, "unknown option 'powr'"),
        (
            {"ranges": {"power": "above 0"}},
            with_power,
            TypeError,
            "give a Range, such as ABOVE_ZERO",
        ),
        ({}, without_hint, TypeError, "option 'power' has no type hint"),
        ({}, with_b, ValueError, "the name 'b' is taken"),
        ({}, krum, ValueError, "rule 'krum' is already taken"),
        ({"kappa": lambda n: 1.0}, plain, TypeError, "kappa must take n and b"),
        ({"kappa": lambda n, b: 1.0, "mixer": True}, plain, TypeError, "what comes after a mixer"),
    ],
)
@pytest.mark.usefixtures("_own_table")
def test_a_wrong_declaration_raises_at_once(
    declaration: dict[str, Any], function: Callable[..., Any], error: type[Exception], message: str
) -> None:
    before = set(RULES)
    with pytest.raises(error, match=message):
        register(**declaration)(function)
    assert set(RULES) == before


@pytest.mark.usefixtures("_own_table")
def test_a_validity_of_your_own() -> None:
    @register(valid=Validity("3b < n", lambda n, b: 3 * b < n), ranges={"power": ABOVE_ZERO})
    def medoid(rows: rules.Rows, *, power: float = 1.0) -> Any:
        """The row nearest to all others."""
        scores = (rows.sq ** (power / 2)).sum(axis=1)
        return rows.combine(np.eye(rows.n)[np.argmin(scores)])

    x = np.array([[1.0], [2.0], [3.0], [9.0]])
    assert medoid(b=1)(x) == 2.0
    assert medoid(b=1, power=2.0) == parse_rule("medoid(power=2.0)", b=1)
    with pytest.raises(ValueError, match="medoid with n=4 rows and b=2: needs 3b < n"):
        medoid(b=2)(x)
    with pytest.raises(ValueError, match=r"medoid\(power=0.0\): power must be above 0"):
        medoid(power=0.0)
    assert "Valid for 3b < n" in inspect.getdoc(medoid)  # type: ignore[operator]


def test_validities() -> None:
    assert MAJORITY(5, 2)
    assert not MAJORITY(4, 2)
    assert BULYAN_SIZE(7, 1)
    assert not BULYAN_SIZE(6, 1)
    assert ANY(2, 1)
    assert not ANY(2, 2)
    with pytest.raises(TypeError, match=r"Validity\('3b < n', 3\): give a text and a function, as"):
        Validity("3b < n", 3)  # type: ignore[arg-type]


# --- exceptions in functions of the user's own ---------------------------------------------------


def fails(*_: Any) -> Any:
    raise ValueError("mine")


@pytest.mark.usefixtures("_own_table")
def test_an_exception_names_the_function_and_the_line() -> None:
    @register(kappa=lambda n, b: fails())
    def own_kappa(rows: Any) -> Any:
        return rows.combine(np.ones(rows.n))

    calls: list[int] = []

    @register(valid=Validity("n ≥ 3", lambda n, b: fails() if calls else True))
    def own_condition(rows: Any) -> Any:
        return rows.combine(np.ones(rows.n))

    @register()
    def own_rule(rows: Any) -> Any:
        return fails()

    calls.append(1)
    updates = np.zeros((5, 2))
    for what, call in (
        ("κ of the rule own_kappa", lambda: own_kappa(b=1).kappa(5)),
        ("κ of the rule own_kappa", lambda: own_kappa.kappa(5, 1)),
        ("condition of the rule own_condition", lambda: own_condition(b=1)(updates)),
        ("condition of the rule own_condition", lambda: own_condition(b=1).kappa(5)),
        ("rule own_rule", lambda: own_rule(b=1)(updates)),
        ("rule own_rule", lambda: (rules.nnm() | own_rule(b=1))(updates)),
    ):
        with pytest.raises(UserCodeError) as raised:
            call()
        assert raised.value.what == what
        assert raised.value.source == 'raise ValueError("mine")'
        assert raised.value.file == __file__


@pytest.mark.usefixtures("_own_table")
def test_a_rule_may_say_that_there_is_no_aggregate() -> None:
    @register()
    def cautious(rows: Any) -> Any:
        raise NoAggregateError("not today")

    with pytest.raises(NoAggregateError, match="not today"):
        cautious(b=1)(np.zeros((5, 2)))
    broken = np.zeros((5, 2))
    broken[:2] = np.nan
    with pytest.raises(NoAggregateError, match="more than b=1 of 5 rows"):
        rules.krum(b=1)(broken)


@pytest.mark.usefixtures("_own_table")
@pytest.mark.parametrize("result", [None, 3.0, np.zeros(5), [0.0, 0.0]])
def test_what_a_rule_returns_is_checked(result: Any) -> None:
    @register()
    def wrong(rows: Any) -> Any:
        return result

    @register(mixer=True)
    def wrong_mixer(rows: Any) -> Any:
        return result

    with pytest.raises(UserCodeError, match=r"a rule returns one vector \(2,\), as rows\.combine"):
        wrong(b=1)(np.zeros((5, 2)))
    with pytest.raises(UserCodeError, match="a mixer returns rows"):
        (wrong_mixer() | rules.median(b=1))(np.zeros((5, 2)))
