"""Handwritten digits that come with scikit-learn: real data without a download."""

import importlib

import numpy as np

from fedro.data.cache import Arrays, cached
from fedro.data.federation import ExampleRows, Federation
from fedro.data.partitions import split_train_test
from fedro.data.sources import register


@register(has_owners=False)
def digits(clients: int | None, seed: int) -> Federation:
    """1,797 handwritten digits, 1×8×8, that come with scikit-learn; a fifth is for testing.

    Args:
        clients: Ignored: the examples belong to nobody.
        seed: Decides which examples are for testing.
    """
    arrays = cached("digits", [], _read)  # faster than to import scikit-learn, which takes 1 s
    x, y = arrays["x"], arrays["y"]
    train, test = split_train_test(len(x), 0.8, seed)
    splits = [(ExampleRows(x, y, train), ExampleRows(x, y, test))]
    return Federation("digits", splits, classes=10, scale=1.0)


def _read() -> Arrays:
    try:
        datasets = importlib.import_module("sklearn.datasets")
    except ImportError:
        raise FileNotFoundError(
            "digits come with scikit-learn, which is not installed: `pip install scikit-learn`"
        ) from None
    loaded = datasets.load_digits()
    x = (loaded.images / 16).astype(np.float32)[:, None]  # 17 shades, from 0 to 1
    return {"x": x, "y": loaded.target.astype(np.int64)}
