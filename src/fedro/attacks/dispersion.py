"""Where a set of updates lies and how far its rows are apart.

Non-finite rows are left out everywhere: the server rejects them, so no attack copies or imitates
them.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels

Floats = NDArray[np.float64]
RowNumbers = NDArray[np.int64]


def finite_mean(updates: Tensor, rows: RowNumbers) -> tuple[Tensor, RowNumbers]:
    """Return the mean of the finite rows and their numbers; zeros if there are none."""
    while rows.size:
        mean, finite = kernels.combine(updates, np.full(rows.size, 1 / rows.size), rows=rows)
        if finite.all():
            return mean, rows
        rows = rows[finite]
    return torch.zeros_like(updates[0]), rows


def finite_moments(updates: Tensor, rows: RowNumbers) -> tuple[Tensor, Tensor, RowNumbers]:
    """Return mean and standard deviation of the finite rows and their numbers; zeros if none.

    The deviation is that of a population (1/n), as in the paper of ALIE. ByzFL documents the same
    but computes 1/(n−1).
    """
    while rows.size:
        mean, std, finite = kernels.moments(updates, rows=rows)
        if finite.all():
            return mean, std, rows
        rows = rows[finite]
    return torch.zeros_like(updates[0]), torch.zeros_like(updates[0]), rows


def dot(a: Tensor, b: Tensor) -> float:
    """Return a·b, with the same bits for any number of threads."""
    return float(kernels.facts(a[None, :], b).dots[0])


def length(vector: Tensor) -> float:
    """Return ‖v‖, with the same bits for any number of threads."""
    return math.sqrt(dot(vector, vector))


@dataclass(frozen=True)
class Dispersion:
    """Moments of some updates g_1, …, g_h and the distances between them.

    Distances and inner products count only the columns that the rule aggregates, not statistics.
    """

    aggregated: Tensor  # (n, trained): those columns of the whole matrix
    rows: RowNumbers  # (h,) which rows of it are g_1, …, g_h
    mean: Tensor  # (width,) ḡ
    std: Tensor  # (width,) σ
    squared_distances: Floats  # (h, h) ‖g_i − g_j‖²
    squared_to_shifted_mean: Floats  # (h,) ‖g_i − (ḡ + σ)‖²

    @cached_property
    def squared_deviations(self) -> Floats:
        """‖g_i − ḡ‖² (h,), computed from the distances between rows."""
        sq, h = self.squared_distances, max(len(self.rows), 1)
        return np.asarray(np.maximum(sq.sum(axis=1) / h - 0.5 * sq.sum() / h**2, 0.0))

    @property
    def spread(self) -> float:
        """‖σ‖, the root of the mean of ‖g_i − ḡ‖²."""
        return float(np.sqrt(self.squared_deviations.sum() / max(len(self.rows), 1)))

    def squared_length(self, v: Tensor) -> float:
        """Return ‖v‖²."""
        if v is self.std:
            return self.spread**2
        return dot(self._aggregated(v), self._aggregated(v))

    def projections(self, v: Tensor) -> Floats:
        """Return (g_i − ḡ)·v for each row, (h,)."""
        if v is self.std:
            deviations = self.squared_deviations
            return np.asarray(0.5 * (deviations + self.spread**2 - self.squared_to_shifted_mean))
        dots = kernels.facts(self.aggregated, self._aggregated(v), rows=self.rows).dots
        return np.asarray(dots - dots.mean())

    def _aggregated(self, v: Tensor) -> Tensor:
        return v[: self.aggregated.shape[1]]


def measure_dispersion(updates: Tensor, rows: RowNumbers, trained: int | None) -> Dispersion:
    """Measure the finite ones of the rows; the rule aggregates the first `trained` columns."""
    aggregated = updates[:, :trained]
    statistics = updates[:, aggregated.shape[1] :]
    while rows.size:
        mean, std, sq, finite = kernels.geometry(aggregated, rows=rows)
        if statistics.shape[1]:
            more = kernels.moments(statistics, rows=rows)
            mean, std = torch.cat([mean, more.mean]), torch.cat([std, more.std])
            finite = finite & more.finite
        if finite.all():
            return Dispersion(aggregated, rows, mean, std, sq[:-1, :-1], sq[-1, :-1])
        rows = rows[finite]
    zeros = torch.zeros_like(updates[0])
    return Dispersion(aggregated, rows, zeros, zeros, np.zeros((0, 0)), np.zeros(0))
