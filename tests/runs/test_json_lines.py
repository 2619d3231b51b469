"""Strict JSON: every program can read it, and values come back as they were."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedro.runs.json_lines import as_plain, parse_json, to_json
from run_folders import create

TREES = st.recursive(
    st.sampled_from([None, False, True]) | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)


def without(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [without(item) for item in value]
    return {k: without(v) for k, v in value.items()} if isinstance(value, dict) else value


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@given(st.dictionaries(st.text(max_size=4), TREES, max_size=3))
def test_json_round_trip(line: dict[str, Any]) -> None:
    text = to_json(line)
    assert b"\n" not in text
    assert text.isascii()
    assert repr(json.loads(text, parse_constant=refuse)) == repr(without(line))
    assert repr(parse_json(text, "line")) == repr(without(line))
    assert repr(json.loads(json.dumps(as_plain(line, finite=False)))) == repr(line)


def test_json_takes_only_what_comes_back(path: Path) -> None:
    assert to_json({"a": (1, 2), "b": np.float64(0.5)}) == b'{"a": [1, 2], "b": 0.5}'
    with pytest.raises(TypeError, match=r"\['a'\]\[1\] is a Tensor: JSON has None, bool"):
        to_json({"a": [1, torch.ones(1)]})
    with pytest.raises(TypeError, match=r"\['a'\]\[1\]: a key of JSON is a string"):
        to_json({"a": {1: 2}})
    with create(path) as folder:
        with pytest.raises(TypeError, match=r"\['loss'\] is a float32"):
            folder.append({"loss": np.float32(1)})
        with pytest.raises(TypeError, match=r"\['x'\] is a set"):
            folder.checkpoint(1, {}, {"x": set()})
        with pytest.raises(TypeError, match=r"\['x'\] is a set"):
            folder.finish({}, {"x": set()})
        assert folder.latest() is None
        assert folder.rounds() == []
    assert not (path / "model.safetensors").exists()
