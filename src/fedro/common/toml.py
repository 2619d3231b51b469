"""Write TOML: Python reads it (``tomllib``) but has no writer.

>>> print(to_toml({"rule": "nnm | trimmed_mean", "rounds": 500, "lr": 0.1, "target": None}), end="")
rule = "nnm | trimmed_mean"
rounds = 500
lr = 0.1
"""

import json
import re
from collections.abc import Mapping

BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(values: Mapping[str, object]) -> str:
    """A line for each key; ``tomllib.loads`` gives the same values back, without those of None."""
    lines = (f"{_key(k)} = {_value(k, v)}\n" for k, v in values.items() if v is not None)
    return "".join(lines)


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"key {key!r}: a key of TOML is a string")
    return key if BARE.fullmatch(key) else _string(key, key)


def _value(key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)  # also of NumPy's float64
    if isinstance(value, str):
        return _string(key, value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(key, item) for item in value)}]"
    kind = type(value).__name__
    raise TypeError(f"{key} = {value!r}: {kind} is not a string, number, true/false or list")


def _string(key: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{key!r}: {text!r} holds half of a surrogate pair, not text") from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
