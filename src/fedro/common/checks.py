"""Arguments as they should be, or an error that says what was given and what is allowed."""

import math
import operator
from collections.abc import Callable


def count(name: str, value: object, low: int, high: int | None = None, of: str = "") -> int:
    """The value as a whole number, or an error that says what was given and what is allowed."""
    allowed = f"at least {low}" if high is None else f"from {low} to {high}" + f" ({of})" * bool(of)
    try:
        if isinstance(value, bool):
            raise TypeError
        whole = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{name}={value!r}: must be a whole number, {allowed}") from None
    if whole < low or (high is not None and whole > high):
        raise ValueError(f"{name}={whole}: must be {allowed}")
    return whole


def number(name: str, value: object, wanted: str, allowed: Callable[[float], bool]) -> float:
    """The value as a float that is allowed, or an error that says what is wanted."""
    try:
        if isinstance(value, (bool, str)):
            raise TypeError
        real = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}={str(value)[:40]!r}: need a number, {wanted}") from None
    if not (math.isfinite(real) and allowed(real)):
        raise ValueError(f"{name}={value}: need {wanted}")
    return real
