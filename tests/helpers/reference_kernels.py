"""The primitives straight from their definitions, in float64 NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def wide(x: Any) -> np.ndarray:
    """Any input as a float64 array."""
    if hasattr(x, "detach"):
        return x.detach().double().numpy()
    return np.asarray(x, dtype=np.float64)


def distances(x: Any) -> np.ndarray:
    w = wide(x)
    return np.stack([((w - row) ** 2).sum(1) for row in w])


def moments(x: Any) -> np.ndarray:
    """(2, d): mean and standard deviation of the columns."""
    w = wide(x)
    return np.stack([w.mean(0), np.sqrt(((w - w.mean(0)) ** 2).mean(0))])


def geometry(x: Any) -> np.ndarray:
    """(n+1, n+1): squared distances between the rows and mean + deviation."""
    return distances(np.vstack([wide(x), moments(x).sum(0)]))


def mixed(x: Any, mixing: Any, scale: Any) -> np.ndarray:
    w = wide(x)
    w = w if scale is None else w * np.asarray(scale)[:, None]
    return w if mixing is None else np.stack([w[np.asarray(part)].mean(0) for part in mixing])


def band(x: Any, low: int, high: int, mixing: Any = None, scale: Any = None) -> np.ndarray:
    return np.sort(mixed(x, mixing, scale), 0)[low:high].mean(0)


def nearest(x: Any, count: int, mixing: Any = None, scale: Any = None) -> np.ndarray:
    """The first `count` values by distance to the median; the lower of two equally near first."""
    w = np.sort(mixed(x, mixing, scale), 0)
    by_distance = np.argsort(np.abs(w - np.median(w, 0)), 0, kind="stable")
    return np.take_along_axis(w, by_distance[:count], 0).mean(0)
