"""What can be said of a round when one knows who is honest: errors, and the κ that was seen."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels

Ids = NDArray[np.int64]


class Error(NamedTuple):
    """How far the aggregate is from the honest mean, beside the honest clients' own spread."""

    squared: float  # ‖A − w̄‖²
    variance: float  # mean of ‖w_i − w̄‖²

    @property
    def kappa(self) -> float | None:
        """The κ seen: the rule's inequality says it is at most the κ proved."""
        if self.variance > 0:
            return self.squared / self.variance
        return 0.0 if self.squared == 0 else None


def aggregation_error(updates: Tensor, honest: Ids, aggregate: Tensor) -> Error:
    """Over the honest rows whose replies were used."""
    share = np.full(honest.size, 1 / honest.size)
    mean, _ = kernels.combine(updates, share, rows=honest)
    spread = kernels.facts(updates, mean, rows=honest).gaps
    gap = torch.linalg.vector_norm(aggregate - mean, dtype=torch.float64)
    return Error(float(gap) ** 2, float(spread.mean()))


class Score(NamedTuple):
    """An evaluation on the honest clients' test data."""

    loss: float
    accuracy: float | None  # of all examples
    clients: float | None  # mean over clients of each one's accuracy
    worst: float | None  # mean accuracy of the tenth of the clients that fare worst
    backdoor: float | None = None  # share of examples with the trigger that get the wanted label


def score(losses: NDArray[np.float64], right: NDArray[np.bool_] | None, owners: Ids) -> Score:
    """From each test example's loss, whether it is right, and whose it is."""
    loss = float(losses.mean()) if np.isfinite(losses).all() else float("nan")
    if right is None:
        return Score(loss, None, None, None)
    sizes = np.bincount(owners)
    hits = np.bincount(owners, weights=right)
    each = np.sort(hits[sizes > 0] / sizes[sizes > 0])
    decile = each[: max(1, round(len(each) / 10))]
    return Score(loss, float(right.mean()), float(each.mean()), float(decile.mean()))
