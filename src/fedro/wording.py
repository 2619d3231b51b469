"""Numbers as people read them."""

import math


def percent(probability: float) -> str:
    """A probability with as many digits as tell it from 0 and 1: 99.3%, 99.99987%, 3e-27."""
    if probability in (0.0, 1.0):
        return f"{probability:.0%}"
    if probability < 1e-6:
        return f"{probability:.1g}"
    distance = min(probability, 1 - probability)
    digits = max(0, -math.floor(math.log10(distance * (1 + 1e-9))) - 1)
    return f"{100 * probability:.{digits}f}".rstrip("0").rstrip(".") + "%"


def counted(number: int, noun: str) -> str:
    """1 client, 2 clients."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
