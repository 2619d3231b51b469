"""Mean and standard deviation of some rows, without a copy of them."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels

Rows = NDArray[np.int64]

CHUNK = 1 << 17  # numbers in a block of columns: in float64 it stays in the cache
LARGE = 1 << 24  # on other devices: enough to keep them busy


def mean(updates: Tensor, rows: Rows) -> tuple[Tensor, Rows]:
    """The mean of the rows that are finite, and which these are; zeros if there is none."""
    while rows.size:
        value, finite = kernels.combine(updates, np.full(rows.size, 1 / rows.size), rows=rows)
        if finite.all():
            return value, rows
        rows = rows[finite]
    return torch.zeros_like(updates[0]), rows


def std(updates: Tensor, rows: Rows) -> Tensor:
    """√(1/n Σ(x_i − x̄)²) per column, in float64, a block of columns at a time; zeros for no rows.

    The population's 1/n, as in the paper of ALIE; ByzFL says so too, but computes 1/(n−1).
    """
    out = torch.zeros_like(updates[0])
    index = torch.from_numpy(rows).to(updates.device)
    numbers = CHUNK if updates.device.type == "cpu" else LARGE
    step = max(1, numbers // max(1, rows.size))
    for start in range(0, updates.shape[1] if rows.size else 0, step):
        block = updates[:, start : start + step].index_select(0, index).double()
        block -= block.mean(0)
        out[start : start + step] = block.square_().mean(0).sqrt_()
    return out
