"""How far a family of messages ḡ + t·v moves the rule's output, without a pass over the data.

Distances to the messages are quadratic in t, so they follow from a few facts about the honest
rows. A rule that is weights made of distances is then known exactly, in n̂ × n̂ numbers. A rule
that sorts coordinates works on a sample of the columns, mixed and selected by the true distances.
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
from fedro.attacks import moments
from fedro.attacks.defense import Defense, arrangement
from fedro.attacks.search import Look
from fedro.attacks.view import View
from fedro.rules.rows import Source

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

SAMPLE = 1 << 14  # columns that stand for all
LARGE = 0.25  # the share of them where an honest client is furthest from the mean;
RUN = 64  # the others are runs of neighbors, evenly spaced


class Honest:
    """Facts about the honest messages of a round that no direction changes."""

    def __init__(self, view: View, defense: Defense) -> None:
        if (view.trained or view.width) != (defense.trained or view.width):
            raise ValueError(
                f"the rule sees trained={defense.trained} columns, but the view trained="
                f"{view.trained}: give both the same"
            )
        self.crowd = view.crowd
        self.updates = view.crowd.seen
        self.rows = view.crowd.rows
        self.bad = arrangement(view)[1]
        self.mean = view.crowd.mean[: self.updates.shape[1]]
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
    def index(self) -> Index:
        """The columns of the sample; all if they are few.

        A small layer with large updates can decide, so columns of that kind are all in it.
        """
        width = self.updates.shape[1]
        if width <= SAMPLE:
            return np.arange(width)
        starts = np.linspace(0, width - RUN, int((1 - LARGE) * SAMPLE) // RUN).astype(np.intp)
        runs = (starts[:, None] + np.arange(RUN)).ravel()
        return np.union1d(runs, self.large)

    @cached_property
    def large(self) -> Index:
        """The columns in which an honest client is furthest from the mean."""
        gap = (self.updates[int(self.rows[0])] - self.mean).abs_()
        return np.asarray(gap.topk(int(LARGE * SAMPLE)).indices.cpu().numpy())

    @cached_property
    def counts(self) -> Floats:
        """For how many columns each of the sample stands, (k,)."""
        width, size = self.updates.shape[1], len(self.index)
        if size == width:
            return np.ones(size)
        own = np.isin(self.index, self.large)
        return np.where(own, 1.0, (width - own.sum()) / (size - own.sum()))

    @cached_property
    def sample(self) -> NDArray[Any]:
        """The honest rows at these columns, and a row for the message, (h+1, k)."""
        found = kernels.columns(self.updates, self.index, rows=self.rows)
        work = np.float64 if self.updates.dtype == torch.float64 else np.float32
        return np.vstack([found, np.zeros(len(self.index))]).astype(work)


class Weighted(NamedTuple):
    """A rule's output as Σ weights_i·x_i + of_reference·r."""

    weights: Floats
    of_reference: float


class Landscape:
    """The rule's output for the messages ḡ + t·v, sent by all bad clients."""

    def __init__(self, honest: Honest, direction: Tensor, defense: Defense) -> None:
        self.honest, self.defense = honest, defense
        self.v = direction  # in all columns
        self.direction = direction[: honest.updates.shape[1]]
        self.exact = True  # until a rule looks at a sample of columns that are not all
        self.place = np.where(honest.bad, len(honest.rows), np.cumsum(~honest.bad) - 1)

    @property
    def scale(self) -> float:
        """The t at which the message is as far off as honest ones are."""
        length = math.sqrt(self.length)
        spread = self.honest.crowd.spread
        return spread / length if length > 0 and spread > 0 else 1.0

    @cached_property
    def length(self) -> float:
        """‖v‖²."""
        return self.honest.crowd.squared(self.v)

    @cached_property
    def single(self) -> Floats:
        """Inner products of ḡ, v and r."""
        vectors = [self.honest.mean, self.direction, self.honest.reference]
        found = np.zeros((3, 3))
        for i, j in combinations_with_replacement(range(3), 2):
            a, b = vectors[i], vectors[j]
            if a is not None and b is not None:
                found[i, j] = found[j, i] = moments.dot(a, b)
        return found

    @cached_property
    def along(self) -> Floats:
        """(g_i − ḡ)·v (h,)."""
        return self.honest.crowd.along(self.v)

    @cached_property
    def around(self) -> Floats:
        """Inner products of g_1 − ḡ, …, g_h − ḡ and v."""
        gaps = self.honest.crowd.gaps
        products = 0.5 * (gaps[:, None] + gaps[None, :] - self.honest.crowd.sq)
        return _bordered(products, self.along[:, None], np.array([[self.length]]))

    @cached_property
    def products(self) -> Floats:
        """Inner products of g_1 − ḡ, …, g_h − ḡ, v, ḡ and r."""
        honest, single = self.honest, self.single
        of_mean = np.append(honest.about_mean.dots - single[0, 0], single[0, 1])
        of_reference = np.append(honest.about_reference.dots - single[0, 2], single[1, 2])
        others = single[np.ix_([0, 2], [0, 2])]
        return _bordered(self.around, np.stack([of_mean, of_reference], axis=1), others)

    def look(self, t: float) -> Look:
        """‖A − ḡ‖ for the message ḡ + t·v; 0 where the rule has no answer: the round is void."""
        if len(self.place) <= 2 * self.defense.tolerated:
            return Look(0.0, t)
        try:
            result = self.defense.rule.on(Sketch(self, t), seed=self.defense.seed)
        except ValueError:
            return Look(0.0, t)
        if isinstance(result, Weighted):
            return self._weighted(result, t)
        self.exact = len(self.honest.index) == self.honest.updates.shape[1]
        gap = np.asarray(result, dtype=np.float64) - self.sampled_mean
        return _look(float((gap * gap * self.honest.counts).sum()), t)

    def _weighted(self, point: Weighted, t: float) -> Look:
        """‖z − ḡ‖ of a point that is a combination of the rows."""
        shares = np.bincount(self.place, weights=point.weights)
        of_honest, of_bad, of_mean = shares[:-1], shares[-1], shares.sum() - 1
        if np.ptp(of_honest) == 0:  # of the honest rows only their mean counts
            a, products = np.array([of_mean, of_bad * t, point.of_reference]), self.single
        elif abs(of_mean) < 1e-12 and point.of_reference == 0:  # an average: only differences count
            a, products = np.append(of_honest, of_bad * t), self.around
        else:
            a = np.append(of_honest, [of_bad * t, of_mean, point.of_reference])
            products = self.products
        return _look(float(np.einsum("i,ij,j", a, products, a)), t, float(of_bad))

    @cached_property
    def sampled_mean(self) -> Floats:
        """ḡ at the columns of the sample."""
        return _at(self.honest.mean, self.honest.index)

    @cached_property
    def sampled_direction(self) -> Floats:
        """v at the columns of the sample."""
        return _at(self.direction, self.honest.index)

    def sample(self, t: float) -> NDArray[Any]:
        """The sample with the message's row filled in."""
        with np.errstate(over="ignore"):
            self.honest.sample[-1] = self.sampled_mean + t * self.sampled_direction
        return self.honest.sample


class Sketch(Source):
    """The honest rows and m copies of ḡ + t·v, known by their distances and a sample."""

    def __init__(self, landscape: Landscape, t: float) -> None:
        picked = np.arange(len(landscape.place))
        super().__init__(None, picked, landscape.defense.tolerated, landscape.honest.reference)
        self.landscape, self.t = landscape, t

    @property
    def width(self) -> int:
        """How many columns there are."""
        return int(self.landscape.honest.updates.shape[1])

    @cached_property
    def sq(self) -> Floats:
        """‖x_i − x_j‖² (n, n)."""
        honest, place, t = self.landscape.honest, self.landscape.place[self.picked], self.t
        along, length = self.landscape.along, self.landscape.length
        points = np.zeros((len(along) + 1, len(along) + 1))
        points[:-1, :-1] = honest.crowd.sq
        to_message = np.maximum(honest.crowd.gaps - 2 * t * along + t * t * length, 0.0)
        points[:-1, -1] = points[-1, :-1] = to_message
        return np.asarray(points[np.ix_(place, place)])

    @cached_property
    def facts(self) -> kernels.Facts:
        """Norms, and products with and distances to the reference."""
        landscape, t = self.landscape, self.t
        honest = landscape.honest
        (gg, gv, gr), (_, vv, vr), (_, _, rr) = landscape.single
        own = max(gg + 2 * t * gv + t * t * vv, 0.0)
        dot = gr + t * vr
        about, place = honest.about_reference, landscape.place[self.picked]
        mine = (own, dot, max(own - 2 * dot + rr, 0.0))
        pairs = zip(about[:3], mine, strict=True)
        squared, dots, gaps = (np.append(known, new)[place] for known, new in pairs)
        return kernels.Facts(squared, dots, gaps, np.ones(len(place), dtype=bool))

    @cached_property
    def reference_norm(self) -> float:
        """‖r‖."""
        return float(np.sqrt(self.landscape.single[2, 2]))

    def combine(self, weights: Floats, of_reference: float) -> Any:
        """The weights themselves, of all rows."""
        found = np.zeros(len(self.landscape.place))
        found[self.picked] = weights
        return Weighted(found, of_reference)

    def band(self, low: int, high: int, **options: Any) -> Any:
        """The kernel on the sample."""
        rows = self.landscape.place[self.picked]
        value, finite = kernels.band(self.landscape.sample(self.t), low, high, rows=rows, **options)
        self.require(finite)
        return value

    def columns(self, index: Index) -> Floats:
        """The rows at some columns, (n, k)."""
        honest = self.landscape.honest
        known = kernels.columns(honest.updates, index, rows=honest.rows)
        message = _at(honest.mean, index) + self.t * _at(self.landscape.direction, index)
        return np.asarray(np.vstack([known, message])[self.landscape.place[self.picked]])

    def gaps_to(self, weights: Floats, of_reference: float) -> tuple[Floats, float]:
        """‖x_i − z‖² and ‖z‖² for a point z, from inner products of the rows."""
        facts, norm = self.facts, self.reference_norm**2
        products = 0.5 * (facts.squared[:, None] + facts.squared[None, :] - self.sq)
        to_point = products @ weights + of_reference * facts.dots
        dots = of_reference * (weights @ facts.dots)
        own = float(weights @ products @ weights + 2 * dots + of_reference**2 * norm)
        return np.maximum(facts.squared - 2 * to_point + own, 0.0), own


def _bordered(inner: Floats, side: Floats, corner: Floats) -> Floats:
    """A symmetric matrix with some more rows and columns."""
    return np.block([[inner, side], [side.T, corner]])


def _look(squared: float, t: float, share: float | None = None) -> Look:
    """A look from ‖A − ḡ‖²; 0 if that is no number."""
    return Look(math.sqrt(squared) if 0 < squared < math.inf else 0.0, t, share)


def _at(vector: Tensor, index: Index) -> Floats:
    return np.asarray(kernels.columns(vector[None, :], index)[0])
