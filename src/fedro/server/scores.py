"""How good a model is on test data, and how far an aggregate is from the honest mean."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels

Ids = NDArray[np.int64]


class AggregationError(NamedTuple):
    """How far the aggregate is from the honest mean, beside the honest clients' own variance."""

    squared: float  # ‖A − w̄‖²
    variance: float  # mean of ‖w_i − w̄‖²

    @property
    def kappa(self) -> float | None:
        """The ratio of the two; a proved κ is an upper bound on it."""
        if self.variance > 0:
            return self.squared / self.variance
        return 0.0 if self.squared == 0 else None


def aggregation_error(updates: Tensor, honest: Ids, aggregate: Tensor) -> AggregationError:
    """Compare an aggregate with the mean of the honest rows whose replies were used."""
    share = np.full(honest.size, 1 / honest.size)
    mean, _ = kernels.combine(updates, share, rows=honest)
    squared_distances = kernels.facts(updates, mean, rows=honest).gaps
    distance = torch.linalg.vector_norm(aggregate - mean, dtype=torch.float64)
    return AggregationError(float(distance) ** 2, float(squared_distances.mean()))


class Score(NamedTuple):
    """An evaluation on the honest clients' test data."""

    loss: float
    accuracy: float | None  # over all examples
    clients: float | None  # mean over the clients of each client's accuracy
    worst: float | None  # mean accuracy of the tenth of the clients with the lowest accuracy
    backdoor: float | None = None  # share of triggered examples that get the attacker's label


def score_examples(
    losses: NDArray[np.float64], correct: NDArray[np.bool_] | None, owners: Ids
) -> Score:
    """Score a model from each test example's loss, whether it is correct, and its owner."""
    loss = float(losses.mean()) if np.isfinite(losses).all() else float("nan")
    if correct is None:
        return Score(loss, None, None, None)
    sizes = np.bincount(owners)
    hits = np.bincount(owners, weights=correct)
    per_client = np.sort(hits[sizes > 0] / sizes[sizes > 0])
    worst = per_client[: max(1, round(len(per_client) / 10))]
    return Score(loss, float(correct.mean()), float(per_client.mean()), float(worst.mean()))
