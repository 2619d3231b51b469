"""Messages among which another one is to hide: where they lie, and how far apart."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels
from fedro.attacks import moments

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Crowd:
    """Rows of a matrix; distances and products are those in the columns that the rule sees."""

    seen: Tensor  # (n, trained): those columns
    rows: Rows  # which rows they are
    mean: Tensor  # (width,) ḡ
    std: Tensor  # (width,) σ
    sq: Floats  # (h, h) ‖g_i − g_j‖²
    further: Floats  # (h,) ‖g_i − ḡ − σ‖²

    @cached_property
    def gaps(self) -> Floats:
        """‖g_i − ḡ‖² (h,), which the distances tell."""
        h = max(len(self.rows), 1)
        return np.asarray(np.maximum(self.sq.sum(axis=1) / h - 0.5 * self.sq.sum() / h**2, 0.0))

    @property
    def spread(self) -> float:
        """‖σ‖, the root of the mean of ‖g_i − ḡ‖²."""
        return float(np.sqrt(self.gaps.sum() / max(len(self.rows), 1)))

    def squared(self, v: Tensor) -> float:
        """‖v‖²."""
        return self.spread**2 if v is self.std else moments.dot(self._seen(v), self._seen(v))

    def along(self, v: Tensor) -> Floats:
        """(g_i − ḡ)·v (h,)."""
        if v is self.std:
            return np.asarray(0.5 * (self.gaps + self.spread**2 - self.further))
        dots = kernels.facts(self.seen, self._seen(v), rows=self.rows).dots
        return np.asarray(dots - dots.mean())

    def _seen(self, v: Tensor) -> Tensor:
        return v[: self.seen.shape[1]]


def gather(updates: Tensor, rows: Rows, trained: int | None) -> Crowd:
    """Those of the rows that are finite; the rule sees the first `trained` columns."""
    seen = updates[:, :trained]
    rest = updates[:, seen.shape[1] :]
    while rows.size:
        mean, std, sq, finite = kernels.geometry(seen, rows=rows)
        if rest.shape[1]:
            more = kernels.moments(rest, rows=rows)
            mean, std = torch.cat([mean, more.mean]), torch.cat([std, more.std])
            finite = finite & more.finite
        if finite.all():
            return Crowd(seen, rows, mean, std, sq[:-1, :-1], sq[-1, :-1])
        rows = rows[finite]
    zeros = torch.zeros_like(updates[0])
    return Crowd(seen, rows, zeros, zeros, np.zeros((0, 0)), np.zeros(0))
