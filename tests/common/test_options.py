"""Options: types from hints, ranges as objects, wrong declarations raise at registration."""

from typing import Any, Literal

import pytest

from fedro.common.options import (
    ABOVE_ZERO,
    AT_LEAST_ONE,
    FITS_FLOAT32,
    PROPER_SHARE,
    Options,
    Range,
    at_least,
)


def stage(
    rows: "a name that does not exist",  # type: ignore[valid-type]  # noqa: F722
    *,
    size: float,
    count: int | None = None,
    mode: Literal["near", "far"] = "near",
    sign: Literal[1, -1] = 1,
    exact: bool = False,
    label: str = "",
) -> None: ...


OPTIONS = Options(
    "stage", stage, {"size": ABOVE_ZERO, "count": AT_LEAST_ONE}, numbers=FITS_FLOAT32, also=("b",)
)


def test_options_are_listed_with_their_defaults() -> None:
    assert str(OPTIONS) == "(size, count=None, mode='near', sign=1, exact=False, label='')"
    assert OPTIONS["size"].required
    assert not OPTIONS["count"].required
    assert OPTIONS.complete({"size": 2})["mode"] == "near"


@pytest.mark.parametrize(
    "given",
    [
        {"size": 1},
        {"size": 0.5, "count": None},
        {"size": 0.5, "count": 3, "mode": "far", "sign": -1, "exact": True, "label": "x"},
    ],
)
def test_allowed_values(given: dict[str, Any]) -> None:
    OPTIONS.check(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"stage needs size=…, as in stage\(size=1.0\)"),
        ({"sise": 1}, "unknown option of stage 'sise': did you mean 'size'.*, b$"),
        ({"size": "abc"}, r"stage\(size='abc'\): size must be of type float$"),
        ({"size": True}, "size must be of type float"),
        ({"size": float("nan")}, "size must be finite"),
        ({"size": 0.0}, r"stage\(size=0.0\): size must be above 0"),
        ({"size": 1e39}, "size must be of a size that float32 can hold, at most 3.4e"),
        ({"size": 10**5000}, r"stage\(size=an integer of \d+ bits\): size must be of a size"),
        ({"size": 1, "count": "abc"}, r"stage\(count='abc'\): count must be of type int \| None"),
        ({"size": 1, "count": 1.5}, "count must be of type int"),
        ({"size": 1, "count": 0}, "count must be at least 1"),
        ({"size": 1, "mode": "nea"}, r"stage\(mode='nea'\): mode must be 'near' or 'far'"),
        ({"size": 1, "sign": 2}, "sign must be 1 or -1"),
        ({"size": 1, "sign": True}, "sign must be 1 or -1"),
        ({"size": 1, "exact": 1}, "exact must be of type bool"),
        ({"size": 1, "label": None}, "label must be of type str"),
        ({"size": [1]}, "size must be of type float"),
    ],
)
def test_a_wrong_value_names_function_option_value_and_what_is_allowed(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        OPTIONS.check(given)


def without_hint(rows: Any, *, size=1.0) -> None: ...  # type: ignore[no-untyped-def]
def with_list(rows: Any, *, sizes: list[int]) -> None: ...
def with_unknown(rows: Any, *, size: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def with_none(rows: Any, *, size: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013
def with_b(rows: Any, *, b: int = 0) -> None: ...
def with_size(rows: Any, *, size: int = 0) -> None: ...


@pytest.mark.parametrize(
    ("function", "ranges", "error", "message"),
    [
        (without_hint, {}, TypeError, "option 'size' has no type hint"),
        (with_list, {}, TypeError, r"option 'sizes' has the type hint list\[int\]; options can be"),
        (with_unknown, {}, TypeError, "cannot resolve a type hint of an option: .*Missing"),
        (with_none, {}, TypeError, "the default size=None must be of type int"),
        (with_b, {}, ValueError, "the name 'b' is taken"),
        (with_size, {"size": AT_LEAST_ONE}, ValueError, "default size=0 must be at least 1"),
        (with_size, {"sise": at_least(0)}, ValueError, "a range for an unknown option 'sise'"),
        (with_size, {"size": "above 0"}, TypeError, "is 'above 0': give a Range, such as ABOVE"),
        (with_size, {"size": lambda value: value > 0}, TypeError, "give a Range"),
    ],
)
def test_a_wrong_declaration_raises_at_once(
    function: Any, ranges: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Options(function.__name__, function, ranges, also=("b",))


def test_ranges() -> None:
    assert PROPER_SHARE(1)
    assert not PROPER_SHARE(0)
    assert at_least(2.5)(2.5)
    assert str(at_least(2.5)) == "at least 2.5"
    with pytest.raises(TypeError, match=r"Range\('above 0', 0\): give a text and a function"):
        Range("above 0", 0)  # type: ignore[arg-type]


def test_a_further_check_comes_last() -> None:
    def further(given: Any) -> None:
        raise ValueError(f"size {given['size']} does not suit")

    options = Options("stage", stage, further=further)
    with pytest.raises(ValueError, match="must be of type float"):
        options.check({"size": "abc"})
    with pytest.raises(ValueError, match="size 1 does not suit"):
        options.check({"size": 1})
