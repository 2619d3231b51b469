"""What is written as TOML is read back as it was."""

import math
import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedro.common.toml import to_toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
SCALARS = st.booleans() | st.integers() | st.floats() | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=4)


@given(st.dictionaries(TEXT, st.none() | VALUES, max_size=4))
def test_round_trip(values: dict[str, Any]) -> None:
    back = tomllib.loads(to_toml(values))
    kept = {key: value for key, value in values.items() if value is not None}
    assert repr(back) == repr(kept)  # the same order, types, signs of zero and NaN


@pytest.mark.parametrize("text", ["\x00\x1f\x7f", '"""\\', "\r\n", "\u0085\u2028\ufeff", "κ = n̂\t"])
def test_strange_strings(text: str) -> None:
    line = to_toml({text: text})
    assert line.count("\n") == 1
    assert tomllib.loads(line) == {text: text}
    assert tomllib.loads(line.encode().decode()) == {text: text}


def test_looks_as_a_person_would_write_it() -> None:
    values = {"rule": "nnm", "client_lr": [(0, 0.1), (300, 0.02)], "iid": True, "a b": -1}
    wanted = 'rule = "nnm"\nclient_lr = [[0, 0.1], [300, 0.02]]\niid = true\n"a b" = -1\n'
    assert to_toml(values) == wanted
    assert to_toml({"x": np.float64(0.1), "y": math.inf, "z": -math.nan}) == (
        "x = 0.1\ny = inf\nz = nan\n"
    )
    assert to_toml({}) == ""


def test_what_has_no_form_is_named() -> None:
    with pytest.raises(TypeError, match="lr = None: NoneType is not"):
        to_toml({"lr": [1, None]})
    with pytest.raises(TypeError, match=r"model = \{'a': 1\}: dict is not"):
        to_toml({"model": {"a": 1}})
    with pytest.raises(TypeError, match=r"seed = .*int64 is not"):
        to_toml({"seed": np.int64(1)})
    with pytest.raises(TypeError, match="key 1: a key of TOML is a string"):
        to_toml({1: 2})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"'name': '\\ud800' holds half of a surrogate pair"):
        to_toml({"name": "\ud800"})
