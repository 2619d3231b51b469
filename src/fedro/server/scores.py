"""How good a model is on test data, and how far an aggregate is from the honest mean."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels

Ids = NDArray[np.int64]


class AggregationError(NamedTuple):
    """How far an aggregate A is from the mean w̄ of the honest updates w_i.

    Attributes:
        squared: ‖A − w̄‖².
        variance: The mean of ‖w_i − w̄‖².
    """

    squared: float
    variance: float

    @property
    def kappa(self) -> float | None:
        """squared / variance, on which a proved κ is an upper bound. None if it is infinite."""
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
    """The result of evaluating a model on the honest clients' test data.

    The accuracies are None for a model that is no classifier, and where they are not known.

    Attributes:
        loss: The mean loss over all examples; NaN if it is not finite.
        accuracy: The accuracy over all examples.
        clients: The mean over the clients of each client's accuracy.
        worst: The mean accuracy of the tenth of the clients with the lowest accuracy.
        backdoor: The share of triggered examples that get the attacker's label, if there is one.

    Example:
        >>> Score(loss=0.3, accuracy=0.9, clients=0.88, worst=0.7).worst
        0.7
    """

    loss: float
    accuracy: float | None
    clients: float | None
    worst: float | None
    backdoor: float | None = None


def score_examples(
    losses: NDArray[np.float64], correct: NDArray[np.bool_] | None, owners: Ids
) -> Score:
    """Score a model.

    Args:
        losses: The loss of each test example.
        correct: Whether the model classifies each example correctly; None if it is no classifier.
        owners: The client that owns each example.

    Returns:
        The score, without `backdoor`.
    """
    loss = float(losses.mean()) if np.isfinite(losses).all() else float("nan")
    if correct is None:
        return Score(loss, None, None, None)
    sizes = np.bincount(owners)
    hits = np.bincount(owners, weights=correct)
    per_client = np.sort(hits[sizes > 0] / sizes[sizes > 0])
    worst = per_client[: max(1, round(len(per_client) / 10))]
    return Score(loss, float(correct.mean()), float(per_client.mean()), float(worst.mean()))
