"""Rules that look for outliers along the direction in which the rows vary most."""

import numpy as np

from fedro.rules import RULES


def test_copies_of_a_row_lose_their_weight_together_in_caf() -> None:
    """Whatever rounding makes of their distances."""

    class Known:
        """Rows of which only the distances are known; their combination is the weights."""

        n, b = 15, 3

        def __init__(self, sq: np.ndarray) -> None:
            self.sq = sq

        def combine(self, weights: np.ndarray) -> np.ndarray:
            return weights

    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((15, 60))
        x[:3] = 40 * x[0]
        sq = ((x[:, None] - x) ** 2).sum(2)
        rounded = sq * (1 + 1e-14 * np.triu(rng.standard_normal(sq.shape), 1))
        rounded = np.triu(rounded) + np.triu(rounded).T
        weights, others = (RULES["caf"].function(Known(given)) for given in (sq, rounded))
        np.testing.assert_allclose(weights, others, atol=1e-9)
        np.testing.assert_allclose(weights[:3], weights[0], atol=1e-9)
