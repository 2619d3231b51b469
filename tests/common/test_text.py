"""Formatted text: what is written as TOML is read back as it was."""

import math
import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedro.common.text import csv_table, markdown_table, to_toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
SCALARS = st.booleans() | st.integers() | st.floats() | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=4)


@given(st.dictionaries(TEXT, st.none() | VALUES, max_size=4))
def test_toml_round_trip(values: dict[str, Any]) -> None:
    text = to_toml(values)
    kept = {key: value for key, value in values.items() if value is not None}
    assert repr(tomllib.loads(text)) == repr(kept)  # same order, types, signs of zero and NaN
    assert text.count("\n") == len(kept)  # a line for each key


@pytest.mark.parametrize("text", ["\x00\x1f\x7f", '"""\\', "\r\n", "\u0085\u2028\ufeff", "κ = n̂\t"])
def test_toml_of_strange_strings(text: str) -> None:
    line = to_toml({text: text, "list": [f"[\n{text},\n]"]})
    assert line.count("\n") == 2
    assert tomllib.loads(line.encode().decode()) == {text: text, "list": [f"[\n{text},\n]"]}


def test_toml_looks_as_a_person_would_write_it() -> None:
    values = {"rule": "nnm", "client_lr": [(0, 0.1), (300, 0.02)], "iid": True, "a b": -1}
    wanted = 'rule = "nnm"\nclient_lr = [[0, 0.1], [300, 0.02]]\niid = true\n"a b" = -1\n'
    assert to_toml(values) == wanted
    assert to_toml({"x": np.float64(0.1), "y": math.inf, "z": -math.nan}) == (
        "x = 0.1\ny = inf\nz = nan\n"
    )
    assert to_toml({}) == ""


def test_toml_with_tables() -> None:
    values = {"model": {"width": 3, "lists": [[1, 2], []]}, "rounds": 2}
    assert tomllib.loads(to_toml(values)) == values


def test_what_toml_cannot_hold_is_named() -> None:
    with pytest.raises(TypeError, match=r"lr = \[1, None\] cannot be written as TOML: .*NoneType"):
        to_toml({"lr": [1, None]})
    with pytest.raises(TypeError, match=r"seed = .* cannot be written as TOML: .*int64"):
        to_toml({"rounds": 3, "seed": np.int64(1)})
    with pytest.raises(TypeError, match=r"1 = 2 cannot be written as TOML: .*key.*string"):
        to_toml({1: 2})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"name = '\\ud800' holds half of a surrogate pair"):
        to_toml({"name": "\ud800"})


def test_tables() -> None:
    assert markdown_table(["a", "b"], [["1 | 2", "3"]]) == (
        "| a | b |\n| --- | --- |\n| 1 \\| 2 | 3 |"
    )
    assert csv_table([{"x": 1}, {"y": 'a"b'}], first=["z"]) == 'z,x,y\n,1,\n,,"a""b"\n'
