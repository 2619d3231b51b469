"""Shares such as "10%", as fractions and as numbers of clients."""

import math
from decimal import Decimal, InvalidOperation

MAX_EXPONENT = 20  # of a share; beyond it, exact decimal arithmetic would take forever


def is_share(value: object) -> bool:
    """Whether the value is a text like "10%"."""
    return isinstance(value, str) and value.strip().endswith("%")


def parse_share(name: str, text: str) -> float:
    """Return 0.05 for "0.05" or "5%".

    Raises:
        ValueError: The text is neither a number nor a share.
    """
    return float(_decimal(name, text, "a number like 0.05, or a share like 5%"))


def share_of(name: str, value: object, total: int, *, of: str, up: bool = True) -> object:
    """Return "10%" of a total as a whole number; any other value is returned as it is.

    Args:
        name: What the error message calls the value.
        value: The value, which may be a share.
        total: What the share is of.
        of: What the total is, for the message.
        up: Whether to round up; otherwise down.

    Raises:
        ValueError: The value is a text, but not a share from 0% to 100%.
    """
    if not isinstance(value, str):
        return value
    allowed = f"a whole number, or a share of {of} from 0% to 100%, like 10%"
    if not is_share(value):
        raise ValueError(f"{name}={value!r}: write {allowed}")
    share = _decimal(name, value, allowed)
    if not 0 <= share <= 1:
        raise ValueError(f"{name}={value!r}: write {allowed}")
    return math.ceil(share * total) if up else math.floor(share * total)


def _decimal(name: str, text: str, allowed: str) -> Decimal:
    number = text.strip()
    try:
        value = Decimal(number.removesuffix("%"))
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite() or value.adjusted() > MAX_EXPONENT:
        raise ValueError(f"{name}={text!r}: write {allowed}")
    return value / 100 if number.endswith("%") else value
