"""Strict JSON: what every program can read, and what comes back as it was."""

import json
import math
from collections.abc import Mapping
from typing import Any

from fedro.runs.files import RunFolderError


def to_json(values: Mapping[str, Any], *, indent: int | None = None) -> bytes:
    """Strict JSON in ASCII; it knows no NaN and no infinities: they become null.

    >>> to_json({"round": 3, "loss": float("nan")})
    b'{"round": 3, "loss": null}'
    """
    return json.dumps(plain(values, finite=True), allow_nan=False, indent=indent).encode()


def plain(value: Any, where: str = "", *, finite: bool) -> Any:
    """The value, if JSON can hold it, with None for NaN and infinities if all must be finite."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return None if finite and not math.isfinite(value) else value
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{i}]", finite=finite) for i, item in enumerate(value)]
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise TypeError(f"{where} is a {kind}: JSON has None, bool, int, float, str, list and dict")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{where}[{key!r}]: a key of JSON is a string")
    return {key: plain(item, f"{where}[{key!r}]", finite=finite) for key, item in value.items()}


def parse(data: bytes, name: object) -> dict[str, Any]:
    """The JSON object in a file or line, or an error that names it."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{name} is damaged: {error}. Put it back from a copy.") from None
    if not isinstance(value, dict):
        raise RunFolderError(f"{name} is damaged: no JSON object. Put it back from a copy.")
    return value
