"""How far the messages ḡ + t·v move the aggregate, as a function of the strength t.

The curve is computed without a pass over the data for each t. Distances to the messages are
quadratic in t, so they follow from a few facts about the honest rows. For a rule whose output is a
weighted sum with weights made of distances, n̂ × n̂ numbers give the exact response. A rule that
sorts coordinates runs on a sample of the columns, mixed and selected by the true distances.
"""

import math
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedro import kernels
from fedro.attacks.defense import Defense, usable_rows
from fedro.attacks.dispersion import Floats, dot
from fedro.attacks.search import Response
from fedro.attacks.view import View
from fedro.rules.rows import Mask, NoAggregateError, RowSource

Index = NDArray[np.intp]

SAMPLED_COLUMNS = 1 << 14
LARGE_FRACTION = 0.25  # of the sample: columns where an honest client is furthest from the mean
RUN_LENGTH = 64  # the other columns are evenly spaced runs of this many neighbors


class HonestRows:
    """Facts about the honest updates of a round that hold for every direction."""

    def __init__(self, view: View, defense: Defense) -> None:
        if (view.trained or view.width) != (defense.trained or view.width):
            raise ValueError(
                f"the rule sees trained={defense.trained} columns, but the view trained="
                f"{view.trained}: give both the same value"
            )
        self.dispersion = view.dispersion
        self.updates = view.dispersion.aggregated
        self.rows = view.dispersion.rows
        self.bad = usable_rows(view)[1]
        self.mean = view.dispersion.mean[: self.updates.shape[1]]
        self.reference = defense.reference

    @cached_property
    def about_mean(self) -> kernels.Facts:
        """‖g_i‖², g_i·ḡ and ‖g_i − ḡ‖²."""
        return kernels.facts(self.updates, self.mean, rows=self.rows)

    @cached_property
    def about_reference(self) -> kernels.Facts:
        """‖g_i‖², g_i·r and ‖g_i − r‖²; r = 0 if there is none."""
        squared = self.about_mean.squared
        if self.reference is None:
            return kernels.Facts(squared, np.zeros(len(squared)), squared, self.about_mean.finite)
        return kernels.facts(self.updates, self.reference, rows=self.rows)

    @cached_property
    def sampled_columns(self) -> Index:
        """Numbers of the sampled columns; all columns if they are few.

        A small layer with large updates can decide the outcome, so the sample includes the columns
        with the largest deviations.
        """
        width = self.updates.shape[1]
        if width <= SAMPLED_COLUMNS:
            return np.arange(width)
        starts = np.linspace(
            0, width - RUN_LENGTH, int((1 - LARGE_FRACTION) * SAMPLED_COLUMNS) // RUN_LENGTH
        ).astype(np.intp)
        runs = (starts[:, None] + np.arange(RUN_LENGTH)).ravel()
        return np.union1d(runs, self.large_columns)

    @cached_property
    def large_columns(self) -> Index:
        """Numbers of the columns in which an honest client is furthest from the mean."""
        gap = (self.updates[int(self.rows[0])] - self.mean).abs_()
        return np.asarray(gap.topk(int(LARGE_FRACTION * SAMPLED_COLUMNS)).indices.cpu().numpy())

    @cached_property
    def columns_represented(self) -> Floats:
        """How many columns each sampled column stands for, (k,)."""
        width, size = self.updates.shape[1], len(self.sampled_columns)
        if size == width:
            return np.ones(size)
        large = np.isin(self.sampled_columns, self.large_columns)
        return np.where(large, 1.0, (width - large.sum()) / (size - large.sum()))

    @cached_property
    def sample(self) -> NDArray[Any]:
        """The honest rows at the sampled columns and an empty row for the message, (h+1, k)."""
        honest = kernels.columns(self.updates, self.sampled_columns, rows=self.rows)
        dtype = np.float64 if self.updates.dtype == torch.float64 else np.float32
        return np.vstack([honest, np.zeros(len(self.sampled_columns))]).astype(dtype)


class WeightedSum(NamedTuple):
    """A rule's output as Σ weights_i·x_i + of_reference·r."""

    weights: Floats
    of_reference: float


class ResponseCurve:
    """How a rule responds to the messages ḡ + t·v, sent by all Byzantine clients.

    Call it with a strength t to get the `Response`.
    """

    def __init__(self, honest: HonestRows, direction: Tensor, defense: Defense) -> None:
        self.honest, self.defense = honest, defense
        self.direction = direction  # v in all columns
        self.aggregated_direction = direction[: honest.updates.shape[1]]
        self.exact = True  # until a rule uses a sample that leaves columns out
        # For each row that the server uses: its number among the honest rows, or, for a
        # Byzantine client, the number of the message, which comes after them.
        self.positions = np.where(honest.bad, len(honest.rows), np.cumsum(~honest.bad) - 1)

    @property
    def scale(self) -> float:
        """The strength at which the message is as far from the mean as honest updates are."""
        length = math.sqrt(self.squared_length)
        spread = self.honest.dispersion.spread
        return spread / length if length > 0 and spread > 0 else 1.0

    @cached_property
    def squared_length(self) -> float:
        """‖v‖²."""
        return self.honest.dispersion.squared_length(self.direction)

    @cached_property
    def gram_of_vectors(self) -> Floats:
        """Inner products of ḡ, v and r, (3, 3)."""
        vectors = [self.honest.mean, self.aggregated_direction, self.honest.reference]
        gram = np.zeros((3, 3))
        for i, j in combinations_with_replacement(range(3), 2):
            a, b = vectors[i], vectors[j]
            if a is not None and b is not None:
                gram[i, j] = gram[j, i] = dot(a, b)
        return gram

    @cached_property
    def projections(self) -> Floats:
        """(g_i − ḡ)·v (h,)."""
        return self.honest.dispersion.projections(self.direction)

    @cached_property
    def gram_of_deviations(self) -> Floats:
        """Inner products of g_1 − ḡ, …, g_h − ḡ and v."""
        sq, squared = self.honest.dispersion.squared_distances, self._squared_deviations
        gram = 0.5 * (squared[:, None] + squared[None, :] - sq)
        return _bordered(gram, self.projections[:, None], np.array([[self.squared_length]]))

    @cached_property
    def gram(self) -> Floats:
        """Inner products of g_1 − ḡ, …, g_h − ḡ, v, ḡ and r."""
        honest, vectors = self.honest, self.gram_of_vectors
        of_mean = np.append(honest.about_mean.dots - vectors[0, 0], vectors[0, 1])
        of_reference = np.append(honest.about_reference.dots - vectors[0, 2], vectors[1, 2])
        others = vectors[np.ix_([0, 2], [0, 2])]
        side = np.stack([of_mean, of_reference], axis=1)
        return _bordered(self.gram_of_deviations, side, others)

    @property
    def _squared_deviations(self) -> Floats:
        return self.honest.dispersion.squared_deviations

    def __call__(self, strength: float) -> Response:
        """Return the response to ḡ + t·v; its distance is 0 if the round would be void."""
        if len(self.positions) <= 2 * self.defense.tolerated:
            return Response(0.0, strength)
        try:
            result = self.defense.rule.aggregate(
                SketchedRows(self, strength), seed=self.defense.seed
            )
        except NoAggregateError:
            return Response(0.0, strength)
        if isinstance(result, WeightedSum):
            return self._weighted(result, strength)
        self.exact = len(self.honest.sampled_columns) == self.honest.updates.shape[1]
        gap = np.asarray(result, dtype=np.float64) - self.sampled_mean
        return _response(float((gap * gap * self.honest.columns_represented).sum()), strength)

    def _weighted(self, aggregate: WeightedSum, strength: float) -> Response:
        """The response of a rule whose output is a weighted sum of the rows."""
        shares = np.bincount(self.positions, weights=aggregate.weights)
        of_honest, of_bad, of_mean = shares[:-1], shares[-1], shares.sum() - 1
        of_reference = aggregate.of_reference
        if np.ptp(of_honest) == 0:  # of the honest rows only their mean counts
            a, gram = np.array([of_mean, of_bad * strength, of_reference]), self.gram_of_vectors
        elif abs(of_mean) < 1e-12 and of_reference == 0:  # an average: only differences count
            a, gram = np.append(of_honest, of_bad * strength), self.gram_of_deviations
        else:
            a = np.append(of_honest, [of_bad * strength, of_mean, of_reference])
            gram = self.gram
        return _response(float(np.einsum("i,ij,j", a, gram, a)), strength, float(of_bad))

    @cached_property
    def sampled_mean(self) -> Floats:
        """ḡ at the sampled columns."""
        return _at(self.honest.mean, self.honest.sampled_columns)

    @cached_property
    def sampled_direction(self) -> Floats:
        """v at the sampled columns."""
        return _at(self.aggregated_direction, self.honest.sampled_columns)

    def sample(self, strength: float) -> NDArray[Any]:
        """Return the sample with the message's row filled in."""
        with np.errstate(over="ignore"):
            self.honest.sample[-1] = self.sampled_mean + strength * self.sampled_direction
        return self.honest.sample


class SketchedRows(RowSource):
    """The honest rows and m copies of ḡ + t·v, represented by distances and sampled columns."""

    def __init__(self, curve: ResponseCurve, strength: float) -> None:
        picked = np.arange(len(curve.positions))
        super().__init__(None, picked, curve.defense.tolerated, curve.honest.reference)
        self.curve, self.strength = curve, strength

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.curve.honest.updates.shape[1])

    def measure_distances(self) -> tuple[Floats, Mask]:
        """Compute ‖x_i − x_j‖² (n, n); all rows are finite."""
        dispersion, t = self.curve.honest.dispersion, self.strength
        to_message = dispersion.squared_deviations - 2 * t * self.curve.projections
        to_message = np.maximum(to_message + t * t * self.curve.squared_length, 0.0)
        distances = _bordered(dispersion.squared_distances, to_message[:, None], np.zeros((1, 1)))
        positions = self.curve.positions[self.picked]
        picked = np.asarray(distances[np.ix_(positions, positions)])
        return picked, np.ones(len(positions), dtype=bool)

    def measure_facts(self) -> kernels.Facts:
        """Compute squared norms, products with the reference and squared distances to it."""
        curve, t = self.curve, self.strength
        (gg, gv, gr), (_, vv, vr), (_, _, rr) = curve.gram_of_vectors
        squared_norm = max(gg + 2 * t * gv + t * t * vv, 0.0)
        product = gr + t * vr
        of_message = (squared_norm, product, max(squared_norm - 2 * product + rr, 0.0))
        pairs = zip(curve.honest.about_reference[:3], of_message, strict=True)
        positions = curve.positions[self.picked]
        squared, dots, gaps = (np.append(honest, one)[positions] for honest, one in pairs)
        return kernels.Facts(squared, dots, gaps, np.ones(len(positions), dtype=bool))

    @cached_property
    def reference_norm(self) -> float:
        """‖r‖."""
        return float(np.sqrt(self.curve.gram_of_vectors[2, 2]))

    def combine(self, weights: Floats, of_reference: float) -> Any:
        """Return the weights of all rows instead of their sum."""
        of_all = np.zeros(len(self.curve.positions))
        of_all[self.picked] = weights
        return WeightedSum(of_all, of_reference)

    def band(self, low: int, high: int, **options: Any) -> Any:
        """Run the kernel on the sampled columns."""
        sample, rows = self.curve.sample(self.strength), self.curve.positions[self.picked]
        value, finite = kernels.band(sample, low, high, rows=rows, **options)
        self.require(finite)
        return value

    def columns(self, index: Index) -> Floats:
        """Return the rows at some columns, (n, k)."""
        honest = self.curve.honest
        known = kernels.columns(honest.updates, index, rows=honest.rows)
        direction = _at(self.curve.aggregated_direction, index)
        message = _at(honest.mean, index) + self.strength * direction
        return np.asarray(np.vstack([known, message])[self.curve.positions[self.picked]])

    def gaps_to(self, weights: Floats, of_reference: float) -> tuple[Floats, float]:
        """Return ‖x_i − z‖² and ‖z‖² for a point z, from inner products of the rows."""
        facts, norm = self.facts, self.reference_norm**2
        products = 0.5 * (facts.squared[:, None] + facts.squared[None, :] - self.sq)
        to_point = products @ weights + of_reference * facts.dots
        dots = of_reference * (weights @ facts.dots)
        own = float(weights @ products @ weights + 2 * dots + of_reference**2 * norm)
        return np.maximum(facts.squared - 2 * to_point + own, 0.0), own


def _bordered(inner: Floats, side: Floats, corner: Floats) -> Floats:
    """Return a symmetric matrix, extended by some rows and columns."""
    return np.block([[inner, side], [side.T, corner]])


def _response(squared: float, strength: float, share: float | None = None) -> Response:
    """Return the response with the distance √squared, or 0 if that is not finite."""
    return Response(math.sqrt(squared) if 0 < squared < math.inf else 0.0, strength, share)


def _at(vector: Tensor, index: Index) -> Floats:
    return np.asarray(kernels.columns(vector[None, :], index)[0])
