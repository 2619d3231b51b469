"""Training and test samples of data that comes without this distinction."""

from fractions import Fraction

import numpy as np

from fedro.common.streams import stream
from fedro.data.federation import Array


def split(samples: int, share: float, seed: int, *keys: int) -> tuple[Array, Array]:
    """Draw ⌊share·samples⌋ rows to train on, one at least; the rest is for testing."""
    train = max(1, int(Fraction(str(share)) * samples)) if samples else 0
    order = stream(seed, "split", *keys).permutation(samples)
    return np.sort(order[:train]), np.sort(order[train:])
