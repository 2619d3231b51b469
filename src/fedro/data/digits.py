"""Handwritten digits that come with scikit-learn: real data without a download."""

import importlib

import numpy as np

from fedro.data.cache import Arrays, cached
from fedro.data.federation import Federation, Rows
from fedro.data.sources import register
from fedro.data.splitting import split


@register(owners=False)
def digits(clients: int | None, seed: int) -> Federation:
    """1,797 handwritten digits, 1×8×8, that come with scikit-learn; a fifth is for testing."""
    arrays = cached(
        "digits", [], _read
    )  # importing scikit-learn takes over a second, this does not
    x, y = arrays["x"], arrays["y"]
    train, test = split(len(x), 0.8, seed)
    return Federation("digits", [(Rows(x, y, train), Rows(x, y, test))], classes=10, scale=1.0)


def _read() -> Arrays:
    try:
        datasets = importlib.import_module("sklearn.datasets")
    except ImportError:
        raise FileNotFoundError(
            "digits come with scikit-learn, which is not installed: `pip install scikit-learn`"
        ) from None
    found = datasets.load_digits()
    x = (found.images / 16).astype(np.float32)[:, None]  # 17 shades, from 0 to 1
    return {"x": x, "y": found.target.astype(np.int64)}
