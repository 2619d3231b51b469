"""Check arguments; errors say what was given and what is allowed."""

import math
import operator
from collections.abc import Callable


def count(name: str, value: object, low: int, high: int | None = None, of: str = "") -> int:
    """Return the value as an int.

    Args:
        name: What the error message calls the value.
        value: The value; bools are refused.
        low: The least allowed value.
        high: The largest allowed value, if there is one.
        of: What `high` is, for the message.

    Raises:
        ValueError: The value is not a whole number from `low` to `high`.
    """
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
    """Return the value as a float.

    Args:
        name: What the error message calls the value.
        value: The value; bools and strings are refused.
        wanted: What is allowed, for the message.
        allowed: Decides whether a finite number is allowed.

    Raises:
        ValueError: The value is not a finite number, or not allowed.
    """
    try:
        if isinstance(value, (bool, str)):
            raise TypeError
        real = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}={str(value)[:40]!r}: need a number, {wanted}") from None
    if not (math.isfinite(real) and allowed(real)):
        raise ValueError(f"{name}={value}: need {wanted}")
    return real
