"""The language of pipelines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedro.common.stages import Stage, parse_stages


def test_stages() -> None:
    assert parse_stages("median") == [Stage("median", {})]
    assert parse_stages("arc | nnm() | krum(original=True)") == [
        Stage("arc", {}),
        Stage("nnm", {}),
        Stage("krum", {"original": True}),
    ]
    assert parse_stages("clip(limit=-1.5)") == [Stage("clip", {"limit": -1.5})]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "|",
        "a |",
        "a & b",
        "a.b",
        "a(1)",
        "f(**x)",
        "f(x=y)",
        "f(x=g())",
        "1 | 2",
        "a b",
        "(",
        "a" * 5 + "\0",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read the rule"):
        parse_stages(text)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        stages = parse_stages(text)
    except ValueError:
        return  # any other exception fails the test
    assert all(stage.name.isidentifier() for stage in stages)
