"""Mean and standard deviation of those rows that are finite, lengths and products of vectors."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels

Rows = NDArray[np.int64]


def mean(updates: Tensor, rows: Rows) -> tuple[Tensor, Rows]:
    """The mean of the rows that are finite, and which these are; zeros if there is none."""
    while rows.size:
        value, finite = kernels.combine(updates, np.full(rows.size, 1 / rows.size), rows=rows)
        if finite.all():
            return value, rows
        rows = rows[finite]
    return torch.zeros_like(updates[0]), rows


def length(vector: Tensor) -> float:
    """‖v‖, the same bits for any number of threads."""
    return math.sqrt(dot(vector, vector))


def dot(a: Tensor, b: Tensor) -> float:
    """a·b, the same bits for any number of threads."""
    return float(kernels.facts(a[None, :], b).dots[0])


def moments(updates: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Rows]:
    """Mean and standard deviation of the rows that are finite, and which; zeros if there is none.

    The population's 1/n, as in the paper of ALIE; ByzFL says so too, but computes 1/(n−1).
    """
    while rows.size:
        value, std, finite = kernels.moments(updates, rows=rows)
        if finite.all():
            return value, std, rows
        rows = rows[finite]
    return torch.zeros_like(updates[0]), torch.zeros_like(updates[0]), rows
